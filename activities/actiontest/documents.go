package actiontest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// testDocuments damages each document that a journal has of a step, one at a time: it deletes or
// truncates it, replaces it by that of another token, or puts it back to what it was before the
// step. Every call must then either be right, or report a damaged record and touch nothing; and
// once the document is restored, the undo must be right. The documents are the files in the folder
// of the token (package journal); a world that keeps none is not tested here.
func (s *suite) testDocuments(t *testing.T) {
	var left, settled []document
	t.Run("documents", func(t *testing.T) {
		w := s.newWorld(t)
		if w.action.Spec().ReadOnly {
			t.Skip("the action only reads")
		}
		planned := w.mustPlan(w.first).Digest
		w.planned = w.copyDocuments(w.first)
		w.mustApply(w.first, planned)
		left = w.findHarms(harms)
		w.mustUndo(w.first, w.Undone)
		settled = w.findHarms(settledHarms)
	})
	if t.Failed() || len(left) == 0 {
		return
	}
	s.harmEach(t, "documents_of_a_step", left)
	s.test(t, "documents_of_an_undo", (*world).harmEachSettled)
	for at, d := range settled {
		for _, how := range d.harms {
			name := "documents_of_an_undo_" + d.nameTest(at, how)
			s.extra = append(s.extra, func(t *testing.T) {
				s.test(t, name, func(w *world) { w.harmSettled(at, how) }, testrun.Extra)
			})
		}
	}
}

// document is one of a step, with the ways in which it can be damaged.
type document struct {
	path  string
	harms []harm
}

func (d document) nameTest(at int, how harm) string {
	return fmt.Sprintf("%02d_%s_%s", at, filepath.Base(d.path), how.name)
}

// findHarms finds the documents of the first step, and which of all harms there is anything to do
// for.
func (w *world) findHarms(all []harm) (found []document) {
	w.t.Helper()
	for _, path := range w.listDocuments(w.first) {
		d := document{path: path}
		for _, how := range all {
			if how.possible == nil || how.possible(w, path) {
				d.harms = append(d.harms, how)
			}
		}
		found = append(found, d)
	}
	return found
}

// listDocuments lists, in order, the paths of a step's documents in the journals below the world's
// folder.
func (w *world) listDocuments(f forward) (paths []string) {
	w.t.Helper()
	folder := string(filepath.Separator) + filepath.Join("tokens", f.Entry.Token) + string(filepath.Separator)
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, folder) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return paths
}

// listTokenFolders lists the folders of a step in the journals below the world's folder.
func (w *world) listTokenFolders(f forward) (folders []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == f.Entry.Token && filepath.Base(filepath.Dir(path)) == "tokens" {
			folders = append(folders, path)
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return folders
}

// harm damages the document at a path, and returns what restores it; nil if there is nothing to
// damage.
type harm struct {
	name string
	do   func(w *world, path string) (heal func())
	// again means that the forward is retried before the undo.
	again bool
	// possible, if set, tells beforehand of a document of the first step whether there is something to
	// damage.
	possible func(w *world, path string) bool
}

var (
	deleted                = harm{"deleted", deleteDocument, false, nil}
	deletedAndAppliedAgain = harm{"deleted_and_applied_again", deleteDocument, true, nil}
	truncated              = harm{"truncated", truncateDocument, false, isNotEmpty}
	swapped                = harm{"swapped", swapDocument, false, isNotEmpty}
	earlier                = harm{"earlier", restoreEarlier, false, wasAnother}

	harms = []harm{deleted, deletedAndAppliedAgain, truncated, swapped, earlier}
	// settledHarms are those to the documents of a step that is undone.
	settledHarms = []harm{deleted, deletedAndAppliedAgain, truncated}
)

func isNotEmpty(w *world, path string) bool { return len(w.readFile(path)) > 0 }

// wasAnother reports whether a document had another content when the step was planned.
func wasAnother(w *world, path string) bool {
	content, found := w.planned[placeOf(w.first, path)]
	return found && !slices.Equal(content, w.readFile(path))
}

// harmEach damages each document in each way, or a part of that, drawn by the run's seed. A Brief
// case leaves out half of the documents, because its other case damages them all.
func (s *suite) harmEach(t *testing.T, name string, documents []document) {
	t.Run(name, func(t *testing.T) {
		var drawnTests []oneTest
		random := testrun.Rand(t)
		order := random.Perm(len(documents))
		for at, d := range documents {
			drawn := random.IntN(len(d.harms))
			for i, how := range d.harms {
				one := oneTest{d.nameTest(at, how), func(w *world) { w.undoHarmed(at, how) }}
				all := s.Sample == 0 && !s.Brief && !s.EitherWay
				if all || i == 0 && !s.Brief || i == drawn && (!s.Brief || order[at]%2 == 0) {
					drawnTests = append(drawnTests, one)
				} else {
					s.extra = append(s.extra, func(t *testing.T) { s.test(t, name+"_"+one.name, one.do, testrun.Extra) })
				}
			}
		}
		if !s.Serial {
			t.Parallel() // only now, because extra tests belong to the whole suite
		}
		for _, one := range drawnTests {
			s.test(t, one.name, one.do)
		}
	})
}

// undoHarmed undoes a step one of whose documents is damaged.
func (w *world) undoHarmed(at int, how harm) {
	planned := w.mustPlan(w.first).Digest
	w.planned = w.copyDocuments(w.first)
	w.mustApply(w.first, planned)
	f := w.first
	if how.name == "swapped" {
		f = w.applyAfterCopying()
	}
	left := w.manifest()
	paths := w.listDocuments(f)
	if at >= len(paths) {
		return // the step has left fewer documents this time
	}
	heal := how.do(w, paths[at])
	if heal == nil {
		return
	}
	if how.again {
		if _, err := w.apply(f, ""); err != nil {
			w.mustFail("Apply with a document "+how.name, err, activities.DamagedRecord)
		}
		w.mustBe(left, "after a second Apply with a document "+how.name)
	}
	w.mustUndoOrFail(f, how.name, left, heal)
}

// mustUndoOrFail requires that the undo is right, or reports a damaged record, loses nothing, and
// is right once that is restored.
func (w *world) mustUndoOrFail(f forward, how, left string, heal func()) {
	w.t.Helper()
	undone, err := w.undo(f, activities.Decision{Done: true})
	switch {
	case err == nil && undone.Outcome == w.Undone:
		w.mustBeBefore("after the undo with a document " + how)
		return
	case err == nil:
		w.t.Fatalf("Undo with a document %s ended %s, want %s or DamagedRecord: %s", how, undone.Outcome, w.Undone,
			asJSON(undone))
	}
	w.mustFail("Undo with a document "+how, err, activities.DamagedRecord)
	w.mustBe(left, "after an Undo that says that a document is "+how)
	if err := w.release(f); err == nil {
		w.t.Fatalf("Release succeeded while an undo waits for a person who mends a document that is %s", how)
	}
	w.mustBe(left, "after a Release with a document "+how)
	heal()
	w.mustUndo(f, w.Undone)
	w.mustBeBefore("after the undo with the document as it was")
}

// harmEachSettled damages each document of a step that is undone. All of them share one world: each
// test leaves that as it was.
func (w *world) harmEachSettled() {
	w.mustApply(w.first, "")
	first, before := w.mustUndo(w.first, w.Undone), w.manifest()
	for _, d := range w.findHarms(settledHarms) {
		for _, how := range d.harms {
			w.undoAgainHarmed(d.path, how, first, before)
		}
	}
}

// harmSettled damages one document of a step that is undone.
func (w *world) harmSettled(at int, how harm) {
	w.mustApply(w.first, "")
	first, before := w.mustUndo(w.first, w.Undone), w.manifest()
	if paths := w.listDocuments(w.first); at < len(paths) { // the step may have left fewer documents this time
		w.undoAgainHarmed(paths[at], how, first, before)
	}
}

// undoAgainHarmed calls the undo again after one of its documents is damaged, and then a late
// forward.
func (w *world) undoAgainHarmed(path string, how harm, first activities.Undone, before string) {
	w.t.Helper()
	heal := how.do(w, path)
	if heal == nil {
		return
	}
	f, what := w.first, filepath.Base(path)+" "+how.name
	if how.again {
		if _, err := w.apply(f, ""); err == nil || activities.TypeOf(err) != activities.DamagedRecord &&
			activities.TypeOf(err) != activities.Fenced {
			w.t.Fatalf("Apply after the undo, with the document %s, returned %v, want Fenced or DamagedRecord", what, err)
		}
		w.mustBe(before, "after a late Apply with the document "+what)
	}
	if undone, err := w.undo(f, noDecision); err != nil {
		w.mustFail("a second Undo with the document "+what, err, activities.DamagedRecord)
	} else if undone.Outcome != first.Outcome {
		w.t.Fatalf("a second Undo with the document %s ended %s, want %s: %s", what, undone.Outcome, first.Outcome,
			asJSON(undone))
	}
	w.mustBe(before, "after a second Undo with the document "+what)
	heal()
	w.mustUndo(f, w.Undone)
	w.mustBe(before, "after a further Undo with the document as it was, which had been "+what)
}

// documentsGone is a step that is done according to the history, but of which the journal has
// nothing left.
func documentsGone(w *world) {
	w.mustApply(w.first, "")
	left := w.manifest()
	folders := w.listTokenFolders(w.first)
	if len(folders) == 0 {
		w.t.Skip("the world keeps no documents")
	}
	var heal []func()
	for _, folder := range folders {
		heal = append(heal, putAside(w, folder))
	}
	_, err := w.undo(w.first, activities.Decision{Done: true})
	w.mustFail("Undo of a step that is done and has no documents", err, activities.DamagedRecord)
	w.mustBe(left, "after the Undo of a step without documents")
	for i, folder := range folders {
		if err := os.RemoveAll(folder); err != nil {
			w.t.Fatal(err)
		}
		heal[i]()
	}
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo with the documents as they were")
}

// recordAndSpareGone is a step that has acted, and whose record is gone under both of its names.
// That it has acted is told by another of its documents, also to an undo to which the history says
// nothing.
func recordAndSpareGone(w *world) {
	w.mustApply(w.first, "")
	left := w.manifest()
	var heal []func()
	for _, path := range w.listDocuments(w.first) {
		if name := filepath.Base(path); name == "record" || name == "record-spare" {
			heal = append(heal, putAside(w, path))
		}
	}
	if len(heal) == 0 {
		w.t.Skip("the world keeps no records in files")
	}
	healed := func() {
		for _, each := range slices.Backward(heal) {
			each()
		}
	}
	for _, d := range []activities.Decision{noDecision, {Done: true}} {
		undone, err := w.undo(w.first, d)
		if err == nil && undone.Outcome == w.Undone {
			w.mustBeBefore("after the undo without a record")
			return
		}
		if err == nil {
			w.t.Fatalf("Undo without a record, decision %s, ended %s, want %s or DamagedRecord: %s", asJSON(d), undone.Outcome,
				w.Undone, asJSON(undone))
		}
		w.mustFail("Undo without a record", err, activities.DamagedRecord)
		w.mustBe(left, "after an Undo that says that the record is gone")
	}
	healed()
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo with the record as it was")
}

// putAside moves a file or folder away. The function that it returns moves it back, in place of
// whatever is there, and restores the time of its parent folder, which copies of that folder
// preserve.
func putAside(w *world, path string) func() {
	w.t.Helper()
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		w.t.Fatal(err)
	}
	aside, err := os.MkdirTemp(w.dir, ".aside-")
	if err != nil {
		w.t.Fatal(err)
	}
	aside = filepath.Join(aside, "it")
	if err := os.Rename(path, aside); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(aside, path); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Dir(path), time.Time{}, folder.ModTime()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func deleteDocument(w *world, path string) func() { return putAside(w, path) }

func truncateDocument(w *world, path string) func() {
	raw := w.readFile(path)
	if len(raw) == 0 {
		return nil
	}
	return w.replaceDocument(path, raw[:len(raw)/2])
}

// replaceDocument replaces the content of a document.
func (w *world) replaceDocument(path string, content []byte) func() {
	w.t.Helper()
	heal := putAside(w, path)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return heal
}

// applyAfterCopying copies the documents of the first step, undoes it, and applies the next one.
func (w *world) applyAfterCopying() forward {
	w.copies = w.copyDocuments(w.first)
	w.mustUndo(w.first, w.Undone)
	w.before = w.manifest()
	w.mustApply(w.next, w.mustPlan(w.next).Digest)
	return w.next
}

// copyDocuments returns the content of a step's documents, by their path in the token's folder.
func (w *world) copyDocuments(f forward) map[string][]byte {
	w.t.Helper()
	copies := map[string][]byte{}
	for _, path := range w.listDocuments(f) {
		copies[placeOf(f, path)] = w.readFile(path)
	}
	return copies
}

// placeOf returns the path of a document in the folder of its token.
func placeOf(f forward, path string) string {
	_, place, _ := strings.Cut(path, f.Entry.Token)
	return place
}

func swapDocument(w *world, path string) func() {
	content, found := w.copies[placeOf(w.next, path)]
	if !found || slices.Equal(content, w.readFile(path)) {
		return nil
	}
	return w.replaceDocument(path, content)
}

// restoreEarlier puts a document back to what it was when the step was planned.
func restoreEarlier(w *world, path string) func() {
	content, found := w.planned[placeOf(w.first, path)]
	if !found || slices.Equal(content, w.readFile(path)) {
		return nil
	}
	return w.replaceDocument(path, content)
}

func (w *world) readFile(path string) []byte {
	w.t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return raw
}
