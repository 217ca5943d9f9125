// Package payload measures and shortens what leaves a workflow. That goes in payloads, and a server
// refuses one of more than 2 MiB: a query is then answered by an error, and a workflow task fails
// for ever. So each is shortened where it is made, to so many bytes as JSON: first texts, then
// lists, and it says what it leaves out. What decides, such as digests, stays. A codec has the
// rest.
//
// It knows no task, and imports nothing of this module.
package payload
