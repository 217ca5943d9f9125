// Package found takes snapshots of the world and compares them with earlier ones. It shares no code
// with the worlds that change it and undo the changes: it is the second opinion by which the demo
// and the end-to-end tests judge them.
package found
