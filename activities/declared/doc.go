// Package declared is what worlds share whose systems know no undo, so that a person declares it
// for each tool, which is whatever such a world can call by a name: a look, which reads what a call
// changes, and inverses, whose arguments are templates over what was called, answered and seen.
//
// A world makes the calls, fences them, and keeps a Call in its record before the first. From the
// Evidence that it has then, this package concludes what became of the call, whether its inverse
// may be called, and what is reported afterwards.
package declared
