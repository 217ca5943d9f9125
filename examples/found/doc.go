// Package found looks at the world, and says in what it differs from an earlier look. It shares no code with the worlds
// that change it and take it back: it is the second opinion that the demo and the end-to-end tests judge them by.
package found
