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

// testDocuments damages each document that a journal has of a step, one at a time: it deletes or truncates it, replaces it by that of
// another token, or puts it back to what it was before the step. Every call must then either be right, or report a damaged record and
// touch nothing; and once the document is restored, the undo must be right. The documents are the files in the folder of the token
// (package journal); a world that keeps none is not tested here.
func (s *suite) testDocuments(t *testing.T) {
	var left, settled []string
	t.Run("documents", func(t *testing.T) {
		w := s.newWorld(t)
		if w.action.Spec().ReadOnly {
			t.Skip("the action only reads")
		}
		w.mustApply(w.first, "")
		left = w.listDocuments(w.first)
		w.mustUndo(w.first, w.Undone)
		settled = w.listDocuments(w.first)
	})
	if t.Failed() || len(left) == 0 {
		return
	}
	s.harmEach(t, "documents_of_a_step", left, func(w *world, at int, do harm) { w.undoHarmed(at, do) })
	s.harmEach(t, "documents_of_an_undo", settled, func(w *world, at int, do harm) { w.undoAgainHarmed(at, do) })
}

// listDocuments lists, in order, the paths of a step's documents in the journals below the world's folder.
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

// harm damages the document at a path, and returns what restores it; nil if there is nothing to damage.
type harm struct {
	name string
	do   func(w *world, path string) (heal func())
	// again means that the forward is retried before the undo.
	again bool
}

var harms = []harm{
	{"deleted", deleteDocument, false},
	{"deleted_and_applied_again", deleteDocument, true},
	{"truncated", truncateDocument, false},
	{"swapped", swapDocument, false},
	{"earlier", restoreEarlier, false},
}

// harmEach damages each document in each way, or a part of that, drawn by the run's seed.
func (s *suite) harmEach(t *testing.T, name string, paths []string, do func(w *world, at int, how harm)) {
	t.Run(name, func(t *testing.T) {
		var drawnTests []oneTest
		random := testrun.Rand(t)
		for at, path := range paths {
			drawn := random.IntN(len(harms))
			for i, how := range harms {
				one := oneTest{fmt.Sprintf("%02d_%s_%s", at, filepath.Base(path), how.name), func(w *world) { do(w, at, how) }}
				if s.Sample == 0 && !s.Brief && !s.EitherWay || i == drawn || i == 0 && !s.Brief {
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

// mustUndoOrFail requires that the undo is right, or reports a damaged record, loses nothing, and is right once that is restored.
func (w *world) mustUndoOrFail(f forward, how, left string, heal func()) {
	w.t.Helper()
	undone, err := w.undo(f, activities.Decision{Done: true})
	switch {
	case err == nil && undone.Outcome == w.Undone:
		w.mustBeBefore("after the undo with a document " + how)
		return
	case err == nil:
		w.t.Fatalf("Undo with a document %s ended %s, want %s or DamagedRecord: %s", how, undone.Outcome, w.Undone, asJSON(undone))
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

// undoAgainHarmed calls the undo again after one of its documents is damaged, and then a late forward.
func (w *world) undoAgainHarmed(at int, how harm) {
	f := w.first
	w.mustApply(f, "")
	first := w.mustUndo(f, w.Undone)
	before := w.manifest()
	paths := w.listDocuments(f)
	if at >= len(paths) || how.name == "swapped" || how.name == "earlier" {
		return
	}
	heal := how.do(w, paths[at])
	if heal == nil {
		return
	}
	if how.again {
		if _, err := w.apply(f, ""); err == nil || activities.TypeOf(err) != activities.DamagedRecord && activities.TypeOf(err) != activities.Fenced {
			w.t.Fatalf("Apply after the undo, with a document %s, returned %v, want Fenced or DamagedRecord", how.name, err)
		}
		w.mustBe(before, "after a late Apply with a document "+how.name)
	}
	if undone, err := w.undo(f, noDecision); err != nil {
		w.mustFail("a second Undo with a document "+how.name, err, activities.DamagedRecord)
	} else if undone.Outcome != first.Outcome {
		w.t.Fatalf("a second Undo with a document %s ended %s, want %s: %s", how.name, undone.Outcome, first.Outcome, asJSON(undone))
	}
	w.mustBe(before, "after a second Undo with a document "+how.name)
	heal()
	w.mustUndo(f, w.Undone)
	w.mustBe(before, "after a further Undo with the document as it was")
}

// documentsGone is a step that is done according to the history, but of which the journal has nothing left.
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

// putAside moves a file or folder away. The function that it returns moves it back, in place of whatever is there, and restores the
// time of its parent folder, which copies of that folder preserve.
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
