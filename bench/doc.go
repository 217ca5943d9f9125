// Command bench measures Unwind side by side with what it is compared to, in one run:
//
//	go run ./bench NAME
//
// prints a table, then one line of JSON with its figures. The exit status is 1 where a target is
// missed, 2 for bad usage. Times depend on the machine; the ratios are what counts.
package main
