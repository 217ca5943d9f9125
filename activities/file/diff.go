package file

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-62bf7108/unwind/activities"
)

// difference is a target that is not as the step left it.
type difference struct {
	op
	now tree
}

// drift describes differences to a person; nil if there are none.
func (r *root) drift(found []difference) *activities.Drift {
	if len(found) == 0 {
		return nil
	}
	var parts [][]byte
	var diff strings.Builder
	for _, d := range found {
		parts = append(parts, []byte(d.Target), []byte(d.now.Digest))
		diff.WriteString(r.diffText(d))
	}
	return &activities.Drift{Digest: activities.DigestOf(parts...), Diff: diff.String()}
}

func (r *root) describeDifferences(found []difference) string {
	paths := make([]string, len(found))
	for i, d := range found {
		paths[i] = filepath.Join(r.path, d.Target)
	}
	verb := " is"
	if len(paths) > 1 {
		verb = " are"
	}
	return strings.Join(paths, ", ") + verb + " not as the step left it"
}

// diffText shows a difference: line by line if the content is short and may be shown.
func (r *root) diffText(d difference) string {
	path := filepath.Join(r.path, d.Target)
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s (as the step left it)\n+++ %s (%s)\n", path, path, d.now.describeLastChange())
	if d.Text != nil && d.now.topNode().Kind == kindFile && d.now.topNode().Mode&0o077 != 0 {
		if text, ok := r.text(d.Target); ok {
			b.WriteString(unified(*d.Text, text))
			if text == *d.Text {
				b.WriteString(diffNodes(d.Post.Nodes, d.now.Nodes, true))
			}
			return b.String()
		}
	}
	b.WriteString(diffNodes(d.Post.Nodes, d.now.Nodes, true))
	return b.String()
}

// describeLastChange says what a file system records of who changed something: when, and whose it
// is.
func (t tree) describeLastChange() string {
	if !t.exists() {
		return "now gone"
	}
	top := t.topNode()
	said := "now"
	if top.Time != 0 {
		said += ", changed " + time.Unix(0, top.Time).UTC().Format(time.RFC3339)
	}
	owner := strconv.FormatUint(uint64(top.UID), 10)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username + " (" + owner + ")"
	}
	return said + ", owner " + owner
}

// text reads a short text file below the root.
func (r *root) text(rel string) (string, bool) { return readText(r.dir, rel) }

func readText(in *os.Root, name string) (string, bool) {
	f, err := in.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil || len(raw) > maxText || !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
		return "", false
	}
	return string(raw), true
}

// diffNodes compares two trees by the metadata and digests of their nodes.
func diffNodes(before, after []node, times bool) string {
	said := map[string][2]string{}
	for i, nodes := range [][]node{before, after} {
		for _, n := range nodes {
			both := said[n.Path]
			both[i] = n.describe(times)
			said[n.Path] = both
		}
	}
	paths := make([]string, 0, len(said))
	for path, both := range said {
		if both[0] != both[1] {
			paths = append(paths, path)
		}
	}
	sort.Strings(paths)
	var b strings.Builder
	for i, path := range paths {
		const most = 200
		if i == most {
			fmt.Fprintf(&b, "... and %s\n", activities.CountOf(len(paths)-most, "more path"))
			break
		}
		for j, sign := range []string{"-", "+"} {
			if s := said[path][j]; s != "" {
				fmt.Fprintf(&b, "%s %s %s\n", sign, path, s)
			}
		}
	}
	if b.Len() == 0 {
		return "(too many entries to show which differ)\n"
	}
	return b.String()
}

func (n node) describe(times bool) string {
	s := fmt.Sprintf("%s %04o %d:%d", n.Kind, n.Mode&0o7777, n.UID, n.GID)
	switch n.Kind {
	case kindFile:
		s += fmt.Sprintf(" %s sha256:%.12s", activities.CountOf(n.Size, "byte"), n.Sum)
	case kindLink:
		s += " -> " + n.Link
	}
	if times && n.Time != 0 {
		s += fmt.Sprintf(" time %d.%09d", n.Time/1e9, n.Time%1e9)
	}
	names := make([]string, 0, len(n.Xattrs))
	for name := range n.Xattrs {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = fmt.Sprintf(" %s=%s", name, activities.DigestOf([]byte(n.Xattrs[name])).Short())
	}
	return s + strings.Join(names, "")
}

// describeChange is what a person reads before approving.
func (a *action) describeChange(d *draft) activities.Change {
	summary, _, risk, fact := a.describeDraft(d)
	c := activities.Change{
		Summary: summary, Strategy: activities.Snapshot, Undo: undoText, Risk: risk, Digest: d.digest(),
	}
	if fact != "" {
		c.Facts = []string{fact}
	}
	var diff strings.Builder
	shown := map[int]bool{}
	for _, g := range d.rec.Given {
		c.Keys = append(c.Keys, "file:"+filepath.Clean(g.Path))
		o := d.rec.Ops[g.Op]
		if !shown[g.Op] {
			shown[g.Op] = true
			fmt.Fprintf(&diff, "--- %s\n+++ %s\n", orNull(d.path, o.Target, o.Pre), orNull(d.path, o.Target, o.Post))
			diff.WriteString(diffNodes(o.Pre.Nodes, o.Post.Nodes, false))
		}
		if g.Below != "." {
			fmt.Fprintf(&diff, "--- /dev/null\n+++ %s\n", filepath.Join(d.path, g.Rel))
		}
		diff.WriteString(d.contentDiff(g))
	}
	c.Diff = diff.String()
	return c
}

func orNull(root, target string, t tree) string {
	if !t.exists() {
		return "/dev/null"
	}
	return filepath.Join(root, target)
}

// contentDiff compares a file's content line by line if it is short and may be shown.
func (d *draft) contentDiff(g namedPath) string {
	o := d.rec.Ops[g.Op]
	if o.Private || o.Pre.exists() && o.Pre.topNode().Kind != kindFile {
		return ""
	}
	var before, after string
	var ok bool
	if o.Pre.exists() {
		if before, ok = d.text(g.Rel); !ok {
			return ""
		}
	}
	if o.Post.exists() {
		if after, ok = readText(d.store, filepath.Join(d.ticket(g.Op), g.Below)); !ok {
			return ""
		}
	}
	return unified(before, after)
}
