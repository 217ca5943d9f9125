// Package replace is the action container.replace: a new container takes the place of another,
// which is put aside until the step's record is released.
//
// A forward makes the new container, tries the image beside the old one where there are checks for
// that, then renames the old one, stops it, and gives its name to the new one. Each container is
// named in a document before it is started: an undo that writes the document first names none, so
// that none is started. So is the old one before it is renamed: where an undo writes that first,
// the old one is not touched, and there is nothing to take back. A trial only reads what the old
// one has mounted.
//
// The old one keeps its id, and no late call may reach it: it is only ever renamed by that, to a
// name of the token; stopped, started and renamed on by that name. An undo takes it to a second
// name, and gives the first to a container that was never started and cannot be, then the second
// one as well. They stay until the record is released. An undo finds the new one under whatever id
// later rollbacks have given it, and the old one too.
package replace
