package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/seed-62bf7108/unwind/activities"
)

// verb is where the two actions differ: the draft that they make of a step.
type verb interface {
	spec() activities.Spec
	// prepare returns the root that a step changes, and a function that stages its change in a draft
	// of that root.
	prepare(w *world, s activities.Step) (*root, func(ctx context.Context, d *draft) error, error)
	// preflight returns why a step is certain to be refused, as far as its parameters are known.
	preflight(w *world, o activities.Outlook) error
	// summarize describes a draft: one line, the result's outputs and the risk.
	summarize(d *draft) (summary string, outputs map[string]any, risk activities.Risk, fact string)
}

const redoText = "what the rollback removed is put back as it was, with owner, mode, times and extended " +
	"attributes; the parameters are ignored"

const undoText = "the original is kept beside the change and moved back, with owner, mode, times and extended " +
	"attributes"

// keyPrefix begins the keys of files.
const keyPrefix = "file:"

// refuseAbsent refuses a path at which there is nothing.
func refuseAbsent(field, path string) error {
	return activities.RefuseCurrent(keyOf(path), "%s: %s does not exist", field, path)
}

// writeVerb is file.write.
type writeVerb struct{}

func (writeVerb) spec() activities.Spec {
	return activities.Spec{
		Name:       "file.write",
		Summary:    "Writes one file, or several at once; missing folders are made.",
		Params:     activities.ParamsSchema[writeParams](),
		UndoParams: []string{"path"},
		Keys: []activities.Key{{Prefix: keyPrefix, Param: "path", Path: true},
			{Prefix: keyPrefix, Param: "files.*.path", Path: true}},
		Reads:      []string{"source", "files.*.source"},
		HostBound:  true,
		Preflights: true,
		Risk:       activities.Low,
		Strategy:   activities.Snapshot,
		Undo:       undoText,
		Redo:       redoText,
		Outputs: map[string]string{
			"path": "the file, if there is one", "sha256": "the digest of its content, if there is one",
			"bytes": "the size of all files", "files": "the list of all files, each with path, sha256 and bytes",
		},
	}
}

func (writeVerb) prepare(w *world, s activities.Step) (*root, func(context.Context, *draft) error, error) {
	all, err := w.filesToWrite(s)
	if err != nil {
		return nil, nil, err
	}
	return all[0].root, func(ctx context.Context, d *draft) error {
		d.filled = true
		ops := map[string]int{}
		for _, x := range all {
			target, err := d.topmostMissing(x.rel)
			if err != nil {
				return err
			}
			n, begun := ops[target]
			if !begun {
				if n, err = d.addSlot(op{Target: target}); err != nil {
					return err
				}
				ops[target] = n
			}
			below, err := filepath.Rel(target, x.rel)
			if err != nil {
				return err
			}
			if err := d.makeFolders(n, below); err != nil {
				return err
			}
			at := filepath.Join(d.ticket(n), below)
			if err := d.writeFile(ctx, at, x); err != nil {
				return err
			}
			if err := d.keepText(ctx, n, x, at); err != nil {
				return err
			}
			d.rec.Given = append(d.rec.Given, namedPath{x.given, n, below, x.rel})
		}
		return nil
	}, nil
}

// topmostMissing is the first part of a path that does not exist: creating it creates the path.
func (r *root) topmostMissing(rel string) (string, error) {
	for {
		folder := filepath.Dir(rel)
		if folder == "." {
			return rel, nil
		}
		_, err := r.dir.Lstat(folder)
		if err == nil {
			return rel, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		rel = folder
	}
}

// makeFolders makes the folders of a new tree on the way to a file in it.
func (d *draft) makeFolders(n int, below string) error {
	parts := strings.Split(below, string(filepath.Separator))
	if below == "." {
		return nil
	}
	for i := range parts {
		at := filepath.Join(append([]string{d.ticket(n)}, parts[:i]...)...)
		if err := d.store.Mkdir(at, 0o755); err != nil {
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return err
		}
		f, err := d.store.Open(at)
		if err != nil {
			return err
		}
		defer f.Close()
		gid := d.groupFor(d.rec.Ops[n].Target)
		if err := chownFile(f, -1, gid); err != nil {
			return err
		}
		mode := fs.FileMode(0o755)
		if gid >= 0 {
			mode |= fs.ModeSetgid
		}
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}
	return nil
}

// maxText is the size up to which content is compared line by line.
const maxText = 64 << 10

// keepText decides whether content may be shown, and keeps it for later comparison if it is short.
// Not to be shown: content of a source, which was meant to stay out of the history, of a file that
// only its owner may read, and with a secret.
func (d *draft) keepText(ctx context.Context, n int, x fileToWrite, at string) error {
	o := &d.rec.Ops[n]
	info, err := d.store.Stat(at)
	if err != nil {
		return err
	}
	secret := activities.HoldsSecret(ctx, x.text)
	if x.source != nil || secret || info.Mode()&0o077 == 0 {
		o.Private = true
	}
	if old, err := d.dir.Stat(x.rel); err == nil && old.Mode()&0o077 == 0 {
		o.Private = true
	}
	if o.Private || x.rel != o.Target || len(x.text) > maxText || !utf8.Valid(x.text) {
		o.Text = nil
		return nil
	}
	text := string(x.text)
	o.Text = &text
	return nil
}

func (writeVerb) summarize(d *draft) (string, map[string]any, activities.Risk, string) {
	var files []map[string]any
	var total int64
	for _, g := range d.rec.Given {
		for _, n := range d.rec.Ops[g.Op].Post.Nodes {
			if n.Path == g.Below {
				files = append(files, map[string]any{"path": g.Path, "sha256": n.Sum, "bytes": n.Size})
				total += n.Size
			}
		}
	}
	outputs := map[string]any{"files": files, "bytes": total}
	if len(files) != 1 {
		risk, fact := activities.Low, ""
		if len(d.rec.Given) >= manyFiles {
			risk, fact = activities.Medium, "writes "+activities.CountOf(len(d.rec.Given), "file")
		}
		return fmt.Sprintf("write %s below %s (%s)", activities.CountOf(len(d.rec.Given), "file"), d.path,
			activities.CountOf(total, "byte")), outputs, risk, fact
	}
	outputs["path"], outputs["sha256"] = files[0]["path"], files[0]["sha256"]
	if pre := d.rec.Ops[0].Pre; pre.exists() {
		return fmt.Sprintf("replace %s (%d -> %s)", d.rec.Given[0].Path, pre.Bytes, activities.CountOf(total, "byte")),
			outputs, activities.Low, ""
	}
	return fmt.Sprintf("create %s (%s)", d.rec.Given[0].Path, activities.CountOf(total, "byte")), outputs, activities.Low,
		""
}

// manyFiles is the number of files from which a change has medium risk.
const manyFiles = 20

// deleteVerb is file.delete.
type deleteVerb struct{}

func (deleteVerb) spec() activities.Spec {
	return activities.Spec{
		Name:       "file.delete",
		Summary:    "Deletes files and whole folders.",
		Params:     activities.ParamsSchema[removeParams](),
		UndoParams: []string{"path", "paths"},
		Keys: []activities.Key{{Prefix: keyPrefix, Param: "path", Path: true},
			{Prefix: keyPrefix, Param: "paths.*", Path: true}},
		HostBound:  true,
		Preflights: true,
		Risk:       activities.Low,
		Strategy:   activities.Snapshot,
		Undo:       undoText,
		Redo:       redoText,
		Outputs: map[string]string{
			"paths": "what was deleted", "entries": "how many files, folders and links that was",
			"bytes": "the size of all files",
		},
	}
}

func (deleteVerb) prepare(w *world, s activities.Step) (*root, func(context.Context, *draft) error, error) {
	all, err := w.pathsToDelete(s)
	if err != nil {
		return nil, nil, err
	}
	return all[0].root, func(_ context.Context, d *draft) error {
		for _, x := range all {
			info, err := d.dir.Lstat(x.rel)
			if errors.Is(err, fs.ErrNotExist) {
				return refuseAbsent("path", x.given)
			}
			if err != nil {
				return err
			}
			n, err := d.addSlot(op{Target: x.rel, Private: info.Mode().IsRegular() && info.Mode()&0o077 == 0})
			if err != nil {
				return err
			}
			d.rec.Given = append(d.rec.Given, namedPath{x.given, n, ".", x.rel})
		}
		return nil
	}, nil
}

func (deleteVerb) summarize(d *draft) (string, map[string]any, activities.Risk, string) {
	var paths []string
	var entries int
	var total int64
	for _, g := range d.rec.Given {
		paths = append(paths, g.Path)
		entries += d.rec.Ops[g.Op].Pre.Count
		total += d.rec.Ops[g.Op].Pre.Bytes
	}
	outputs := map[string]any{"paths": paths, "entries": entries, "bytes": total}
	what := paths[0]
	if len(paths) > 1 {
		what = fmt.Sprintf("%s below %s", activities.CountOf(len(paths), "path"), d.path)
	}
	if entries >= manyFiles {
		return fmt.Sprintf("delete %s (%s, %s)", what, activities.CountOf(entries, "entry"),
			activities.CountOf(total, "byte")), outputs, activities.Medium, "deletes " + activities.CountOf(entries, "entry")
	}
	return fmt.Sprintf("delete %s (%s)", what, activities.CountOf(total, "byte")), outputs, activities.Low, ""
}
