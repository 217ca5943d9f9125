// Package mutants holds the tests of this repository to account: each mutant is the product with
// one guarantee taken out of its source, and the tests must notice. It has tests only:
//
//	UNWIND_TEST_DEEP=1 go test -timeout 1h ./bench/mutants
//
// A plain run looks only whether each mutant's text still stands in the source, once. Whoever moves
// or rewords it changes the mutant with it; whoever adds a world adds its fence, its record and
// what it makes durable.
package mutants
