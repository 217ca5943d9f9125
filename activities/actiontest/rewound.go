package actiontest

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
)

// journalRewound puts the journals back to the state before a step was compiled, as it happens when
// their disk or machine is restored. Nobody can then know what the step did, also if its forward is
// not known to have succeeded.
func journalRewound(w *world) {
	journals := w.listJournals()
	if len(journals) == 0 {
		w.t.Skip("the world keeps no journal in files")
	}
	old := map[string]string{}
	for _, dir := range journals {
		old[dir] = w.copyAside(dir)
	}
	place, err := w.opened.Journal(w.ctx())
	if err != nil {
		w.t.Fatalf("Journal: %v", err)
	}
	f := w.first
	f.Entry.Place.Journal = place
	w.mustApply(f, "")
	left := w.manifest()
	var heal []func()
	for _, dir := range journals {
		heal = append(heal, putAside(w, dir))
		if err := os.CopyFS(dir, os.DirFS(old[dir])); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, d := range []activities.Decision{noDecision, {Done: true}, {Redoable: true}} {
		_, err = w.undo(f, d)
		w.mustFail("Undo with a rewound journal", err, activities.DamagedRecord)
	}
	_, err = w.apply(f, "")
	w.mustFail("Apply with a rewound journal", err, activities.DamagedRecord)
	if _, err = w.opened.Journal(w.ctx()); err != nil { // the next task, before any undo
		w.t.Fatalf("Journal of a rewound journal: %v", err)
	}
	_, err = w.undo(f, noDecision)
	w.mustFail("Undo with a journal that was rewound before the next task was compiled", err, activities.DamagedRecord)
	w.mustFail("Release with a rewound journal", w.release(f), activities.DamagedRecord)
	w.mustBe(left, "after calls with a rewound journal")
	for i, dir := range journals {
		if err := os.RemoveAll(dir); err != nil {
			w.t.Fatal(err)
		}
		heal[i]()
	}
	w.mustUndo(f, w.Undone)
	w.mustBeBefore("after the undo with the journal as it was")
}

// listJournals lists the folders of the journals below the world's folder.
func (w *world) listJournals() (dirs []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "tokens" {
			dirs = append(dirs, filepath.Dir(path))
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return dirs
}

// copyAside copies a folder, and returns where the copy is.
func (w *world) copyAside(dir string) string {
	w.t.Helper()
	aside := filepath.Join(w.t.TempDir(), "copy")
	if err := os.CopyFS(aside, os.DirFS(dir)); err != nil {
		w.t.Fatal(err)
	}
	return aside
}
