// Package alteration is what steps do to the schema, and how it is taken back: by an inverse that
// is found out and tried (alter.go, revert.go), or by the undo that a step declares, which is tried
// too (declared.go, takeback.go).
package alteration
