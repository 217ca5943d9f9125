package crash

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples/found"
)

// files is one step that writes or deletes some files.
type files struct {
	Host    int
	Deletes bool
	// Fails adds a check that does not hold of the files when they are in place.
	Fails bool

	id     string
	on     string
	root   string
	dir    string
	before found.Snapshot
}

func (p *files) name(n int) { p.id = fmt.Sprintf("files-%d", n) }

func (p *files) actions() []string {
	if p.Deletes {
		return []string{"file.delete"}
	}
	return []string{"file.write"}
}

func (p *files) firstStep() string { return p.id }

func (p *files) host() (int, bool) { return p.Host, true }

const fresh = "written by the task\n"

// setUp makes files of odd modes and old times.
func (p *files) setUp(_ context.Context, r *run, task string) error {
	m := r.fleet.members[p.Host]
	p.on, p.root = m.Host, m.files()
	p.dir = filepath.Join(p.root, task, p.id)
	if err := os.MkdirAll(filepath.Join(p.dir, "doomed"), 0o750); err != nil {
		return err
	}
	old := time.Date(2024, 3, 1, 8, 30, 0, 123_456_789, time.UTC)
	for name, mode := range map[string]os.FileMode{"old": 0o604, "doomed/a": 0o640, "doomed/b": 0o755, "kept": 0o600} {
		path := filepath.Join(p.dir, name)
		if err := os.WriteFile(path, []byte("before: "+name+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		if err := os.Chtimes(path, old, old); err != nil {
			return err
		}
	}
	if err := os.Symlink("kept", filepath.Join(p.dir, "doomed", "link")); err != nil {
		return err
	}
	var err error
	p.before, err = found.Files("", p.dir)
	return err
}

func (p *files) steps() []map[string]any {
	at := func(name string) string { return filepath.Join(p.dir, name) }
	step := map[string]any{"id": p.id, "uses": p.actions()[0], "on": p.on}
	if p.Deletes {
		step["with"] = map[string]any{"paths": []string{at("doomed"), at("old")}}
	} else {
		step["with"] = map[string]any{"files": []map[string]any{
			{"path": at("old"), "content": fresh}, {"path": at("new/deep/one"), "content": fresh},
			{"path": at("two"), "content": fresh},
		}}
	}
	if p.Fails {
		step["check"] = []map[string]any{{"exists": at("nowhere"), "when": "live"}}
	}
	return []map[string]any{step}
}

func (p *files) wants() []found.Want {
	if p.Deletes {
		return []found.Want{{Change: "- old"}, {Change: "- doomed"}, {Change: "- doomed/a"}, {Change: "- doomed/b"},
			{Change: "- doomed/link"}}
	}
	written := holds(fresh)
	return []found.Want{
		{Change: "~ old", Facts: written}, {Change: "+ two", Facts: written},
		{Change: "+ new"}, {Change: "+ new/deep"}, {Change: "+ new/deep/one", Facts: written},
	}
}

// holds is the fact that a file has this content.
func holds(content string) found.Facts {
	sum := sha256.Sum256([]byte(content))
	return found.Facts{"sha256": hex.EncodeToString(sum[:])}
}

func (p *files) judgePart(_ context.Context, _ *run, e taskEnd) (v verdict, err error) {
	now, err := found.Files("", p.dir)
	if err != nil {
		return v, err
	}
	for _, wrong := range differences(found.FilesWorld, p.before, now, p.wants(), e) {
		v.Lost = append(v.Lost, p.id+": "+wrong)
	}
	for _, token := range e.tokens(p.id) {
		if e.committed() && token == e.token(p.id) {
			break
		}
		staged, err := findStaged(p.root, token, len(e.Earlier) > 0)
		if err != nil {
			return v, err
		}
		v.Orphaned = append(v.Orphaned, staged...)
	}
	return v, nil
}

// findStaged are the files that a token has left in the store beside a root: after an undo, its
// tombstones are plain and empty, but for what a rollback keeps.
func findStaged(root, token string, keeps bool) (left []string, err error) {
	for _, where := range []string{"stage", "undo"} {
		at := filepath.Join(root, ".unwind", where, token)
		info, err := os.Lstat(at)
		switch {
		case os.IsNotExist(err):
		case err != nil:
			return nil, err
		case info.IsDir() && (where != "undo" || !keeps):
			left = append(left, at+" is staged yet")
		}
	}
	return left, nil
}

// litter is what is in the trash of a root, and what is staged there for no token at all.
func litter(root string) (left []string, err error) {
	for _, where := range []string{"trash", "stage", "undo"} {
		err := filepath.WalkDir(filepath.Join(root, ".unwind", where), func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == filepath.Join(root, ".unwind", where) {
				return err
			}
			if where == "trash" || len(d.Name()) != len(activities.NewToken("", "", 0)) {
				left = append(left, path+" is left over")
			}
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	return left, nil
}

func (p *files) clear(context.Context, *run) error { return nil }

func (p *files) String() string {
	what := []string{strings.TrimPrefix(p.actions()[0], "file.")}
	if p.Fails {
		what = append(what, "and fail")
	}
	return fmt.Sprintf("%s on host %d: %s", p.id, p.Host, strings.Join(what, " "))
}
