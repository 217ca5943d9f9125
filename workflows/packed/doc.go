// Package packed carries large values in small payloads: a server takes none of more than 2 MB, and the ledger of a long
// task has more.
package packed
