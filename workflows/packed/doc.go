// Package packed carries large values in small payloads: a server accepts at most 2 MB, and the
// ledger of a long task is larger.
package packed
