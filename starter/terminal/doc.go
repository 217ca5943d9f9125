// Package terminal puts text into the form that people read at a terminal: tables, single lines,
// times, quoted words.
package terminal
