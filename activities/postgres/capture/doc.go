// Package capture is the tables whose rows steps change: the trigger on each that writes the row
// before and after to the journal, what a table is described by, and how its rows are shown.
package capture
