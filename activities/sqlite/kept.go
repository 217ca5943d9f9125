package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

const namePrefix = "cp-"

// nameOf is the name of the checkpoint that a token makes.
func nameOf(token string) string { return namePrefix + token }

// tokenOf is the token that has made the checkpoint with a name.
func tokenOf(name string) (string, error) {
	token, is := strings.CutPrefix(name, namePrefix)
	if !is || len(token) != 32 || strings.Trim(token, "0123456789abcdef") != "" {
		return "", activities.Errorf(activities.Refused,
			"checkpoint: %q is no name of a checkpoint; take the output checkpoint of a step of %s", name, keepName)
	}
	return token, nil
}

// findKept finds the file with what a checkpoint has of the database at a path, and its digest.
func (c *call) findKept(name, path string) (file, digest string, err error) {
	token, err := tokenOf(name)
	if err != nil {
		return "", "", err
	}
	t, err := c.journal.Token(token)
	if err != nil {
		return "", "", err
	}
	var rec record
	var k kept
	found, err := t.Read(journal.Record, &rec)
	if err == nil && found && rec.Entry.Action == keepName {
		found, err = t.Read(journal.Applied, &k)
	} else {
		found = false
	}
	if err != nil {
		return "", "", err
	}
	file = c.keptFile(token)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		fate, err := t.Fate()
		if err != nil {
			return "", "", err
		}
		found = found && fate == journal.Undecided // else it is gone, and should not be
	}
	switch {
	case !found:
		err = activities.Errorf(activities.Refused,
			"checkpoint: there is no %s on this worker: it was never made here, was undone, or its record was released", name)
	case rec.Path != path:
		err = activities.Errorf(activities.Refused, "checkpoint: %s is of %s, and the database is %s", name, rec.Path, path)
	}
	return file, k.Digest, err
}

// openKept opens a checkpoint, whose content it checks, to read it.
func (c *call) openKept(name, path string) (*database, error) {
	file, digest, err := c.findKept(name, path)
	if err == nil {
		err = checkFile(file, digest)
	}
	if err != nil {
		return nil, err
	}
	conn, err := openCopy(file)
	return &database{connection: conn, path: file}, err
}

// unpack copies a checkpoint, whose content it checks, to a file that may be written, and opens
// that.
func (c *call) unpack(name, path, to string) (*database, error) {
	file, digest, err := c.findKept(name, path)
	if err != nil {
		return nil, err
	}
	if err := copyChecked(file, digest, to); err != nil {
		return nil, err
	}
	d, err := c.open(to)
	if err != nil {
		return nil, err
	}
	// It need not survive a crash. Without a write-ahead log a database keeps the one that it has.
	if err := errors.Join(d.run("PRAGMA journal_mode = OFF"), d.run("PRAGMA synchronous = OFF")); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.path = path // which it is to become, in messages
	return d, nil
}

// copyChecked copies a file with this digest.
func copyChecked(from, digest, to string) (err error) {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(from, errors.New("it is gone"))
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, h), in); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != digest {
		return damaged(from, errChanged)
	}
	return nil
}
