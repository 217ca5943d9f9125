package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// draft is a staged change that has not touched its target.
type draft struct {
	*root
	token string
	rec   record
	// filled: every ticket holds something; the ticket of a deletion is empty.
	filled bool
	// redo is the rollback that the draft restores from; nil if the step's parameters say what it
	// does.
	redo *rollback
}

// beginDraft makes the folder of a new attempt's tickets.
func (r *root) beginDraft(token string) (*draft, error) {
	d := &draft{root: r, token: token, rec: record{Attempt: rand.Text()}}
	if err := r.makeFolder(stagePath(token, d.rec.Attempt)); err != nil {
		return nil, err
	}
	return d, nil
}

// ticket is the path of a change's ticket in the store.
func (d *draft) ticket(n int) string {
	return stagePath(d.token, d.rec.Attempt, d.rec.Ops[n].ticket(n))
}

// addSlot makes the folder of the next change's ticket.
func (d *draft) addSlot(o op) (n int, err error) {
	d.rec.Ops = append(d.rec.Ops, o)
	n = len(d.rec.Ops) - 1
	return n, d.makeFolder(filepath.Dir(d.ticket(n)))
}

// discard removes a draft.
func (d *draft) discard() error {
	return d.clearAttempts(d.token, func(attempt string) bool { return attempt == d.rec.Attempt })
}

// clearAttempts removes attempts' folders of tickets.
func (r *root) clearAttempts(token string, which func(attempt string) bool) error {
	f, err := r.store.Open(stagePath(token))
	if err != nil {
		if isLost(err) {
			return nil
		}
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, unix.ENOTDIR) {
		return err
	}
	for _, name := range names {
		if !which(name) {
			continue
		}
		if err := r.throwAway(stagePath(token, name)); err != nil {
			return err
		}
	}
	return nil
}

// captureTargets reads what is at the targets, and the folders that they are in.
func (d *draft) captureTargets(ctx context.Context) error {
	seen := map[string]bool{}
	for i := range d.rec.Ops {
		o := &d.rec.Ops[i]
		folder := filepath.Dir(o.Target)
		at, there, err := d.statOf(folder)
		if err != nil {
			return err
		}
		if !there {
			return activities.Errorf(activities.ActionFailed, "folder %s was just removed", filepath.Join(d.path, folder))
		}
		if at.Dev != d.dev {
			return activities.Errorf(activities.Refused,
				"path: %s is on another filesystem than its root %s, so files cannot be renamed into it; make it an allowed "+
					"root of its own", filepath.Join(d.path, folder), d.path)
		}
		if !seen[folder] {
			seen[folder] = true
			d.rec.Parents = append(d.rec.Parents, parent{folder, unix.TimespecToNsec(at.Mtim)})
		}
		if o.Pre, err = d.atTarget(ctx, o.Target); err != nil {
			return err
		}
		// The undo data of another root, or of another worker, can be in it: mounted, or a root that this
		// worker does not have.
		for _, n := range o.Pre.Nodes {
			if n.Kind == kindFolder && filepath.Base(n.Path) == storeName {
				return activities.Errorf(activities.Refused,
					"path: %s contains undo data, in %s; if no worker uses that any more, remove it first",
					filepath.Join(d.path, o.Target), filepath.Join(o.Target, n.Path))
			}
		}
	}
	return nil
}

// scanStaged reads what is staged.
func (d *draft) scanStaged(ctx context.Context) (err error) {
	for i := range d.rec.Ops {
		o := &d.rec.Ops[i]
		if o.Post, err = d.atTicket(ctx, d.ticket(i)); err != nil {
			return err
		}
		if d.filled && !o.Post.exists() {
			return errLost // an undo has taken it
		}
	}
	return nil
}

// syncStaged syncs the folders of what is staged: the files are synced already.
func (d *draft) syncStaged() error {
	folders := []string{stageDir, stagePath(d.token), stagePath(d.token, d.rec.Attempt)}
	for i, o := range d.rec.Ops {
		folders = append(folders, filepath.Dir(d.ticket(i)))
		for _, n := range o.Post.Nodes {
			if n.Kind == kindFolder {
				folders = append(folders, filepath.Join(d.ticket(i), n.Path))
			}
		}
	}
	for _, folder := range folders {
		if err := d.syncFolder(folder); err != nil {
			return err
		}
	}
	return nil
}

// digest covers the change and its target.
func (d *draft) digest() activities.Digest {
	var parts [][]byte
	for _, o := range d.rec.Ops {
		parts = append(parts, []byte(o.Target), o.Post.contentKey(), []byte(o.Pre.Digest))
	}
	return activities.DigestOf(parts...)
}

// writeFile writes a file of the draft. A replaced file passes on its owner, mode and extended
// attributes.
func (d *draft) writeFile(ctx context.Context, at string, x fileToWrite) (err error) {
	old, replaces, err := x.replacedNode(ctx)
	if err != nil {
		return err
	}
	f, err := d.store.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if err := x.copyTo(ctx, f); err != nil {
		return err
	}
	mode := uint32(0o644)
	if replaces {
		mode = old.Mode &^ 0o6000 // as any write to a file clears setuid and setgid
	}
	if x.mode != 0 {
		mode = x.mode
	}
	uid, gid := int(old.UID), int(old.GID)
	if !replaces {
		uid, gid = -1, d.groupFor(x.rel)
	}
	if err := chownFile(f, uid, gid); err != nil {
		return activities.Errorf(activities.Refused,
			"%s belongs to user %d and group %d, and this worker may not give files to them (%v); run it as a user who may",
			x.abs(), uid, gid, err)
	}
	if replaces {
		if err := copyXattrs(f, old); err != nil {
			return fmt.Errorf("%s: %w", x.abs(), err)
		}
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return err
	}
	return f.Sync()
}

// replacedNode is the node that the file replaces.
func (x fileToWrite) replacedNode(ctx context.Context) (node, bool, error) {
	info, err := x.dir.Lstat(x.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return node{}, false, nil
	case err != nil:
		return node{}, false, err
	case info.IsDir():
		return node{}, false, activities.Errorf(activities.Refused, "path: %s is a folder; name a file in it", x.given)
	case !info.Mode().IsRegular():
		return node{}, false, activities.Errorf(activities.Refused, "path: %s is not a regular file (%s); delete it first",
			x.given, info.Mode().Type())
	}
	old, err := x.atTarget(ctx, x.rel)
	return old.topNode(), old.exists(), err
}

// copyTo writes the file's content.
func (x fileToWrite) copyTo(ctx context.Context, f *os.File) error {
	if x.source == nil {
		_, err := io.Copy(f, bytes.NewReader(x.text))
		return err
	}
	from, err := x.source.dir.OpenFile(x.source.rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return refuseAbsent("source", x.source.abs())
		}
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return activities.Errorf(activities.Refused, "source: %s is not a regular file", x.source.abs())
	}
	defer activities.ShowProgress(ctx, func() []string {
		at, err := f.Stat()
		if err != nil {
			return nil
		}
		return []string{fmt.Sprintf("copied %d of %d MB", at.Size()>>20, info.Size()>>20)}
	})()
	_, err = io.Copy(f, from)
	return err
}

// groupFor is the group of a new file or folder: that of a parent with the setgid bit, otherwise
// the worker's own.
func (r *root) groupFor(rel string) int {
	for folder := filepath.Dir(rel); ; folder = filepath.Dir(folder) {
		info, err := r.dir.Stat(folder)
		if err == nil {
			var st unix.Stat_t
			f, err := r.dir.Open(folder)
			if err != nil {
				return -1
			}
			defer f.Close()
			if info.Mode()&fs.ModeSetgid != 0 && unix.Fstat(int(f.Fd()), &st) == nil {
				return int(st.Gid)
			}
			return -1
		}
		if folder == "." {
			return -1
		}
	}
}

// chownFile changes the owner of a file if it differs; -1 leaves it.
func chownFile(f *os.File, uid, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if (uid < 0 || uid == int(st.Uid)) && (gid < 0 || gid == int(st.Gid)) {
		return nil
	}
	return f.Chown(uid, gid)
}

// copyXattrs gives a new file the extended attributes of the old one. Those that the kernel guards
// (capabilities, integrity) belong to the old content; labels are kept if this process may set
// them.
func copyXattrs(f *os.File, old node) error {
	for name, value := range old.Xattrs {
		raw, err := hex.DecodeString(value)
		if err != nil {
			return err
		}
		switch name {
		case "security.capability", "security.ima", "security.evm":
			continue
		}
		err = xattr.FSet(f, name, raw)
		if err != nil && (strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.")) {
			return fmt.Errorf("extended attribute %s cannot be copied: %w", name, err)
		}
	}
	return nil
}
