package redis

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

const (
	namePrefix = "cp-"
	// checkpoints is the folder of the state that has a file for each checkpoint, by its name.
	checkpoints = "checkpoints"
)

// nameOf is the name of the checkpoint that a token makes.
func nameOf(token string) string { return namePrefix + token }

// tokenOf is the token that has made the checkpoint with a name.
func tokenOf(name string) (string, error) {
	token, is := strings.CutPrefix(name, namePrefix)
	if !is || len(token) != 32 || strings.Trim(token, "0123456789abcdef") != "" {
		return "", refused("checkpoint: %q is no name of a checkpoint; take the output checkpoint of a step of %s", name,
			keepSpec.Name)
	}
	return token, nil
}

func (w *world) keptFile(token string) string {
	return filepath.Join(w.State, checkpoints, nameOf(token))
}

// keptBytes is what the checkpoint of an entry takes.
func (w *world) keptBytes(e activities.Entry) int64 {
	info, err := os.Lstat(w.keptFile(e.Token))
	if err != nil {
		return 0
	}
	return info.Size()
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// origin is what tells a database from others.
type origin struct {
	// Database is its name in the config.
	Database string `json:"database"`
	// Journal is the id of the journal in it, which goes where its data go, and is lost with them.
	Journal string `json:"journal"`
	// Address is a digest of that of the server, and of the number.
	Address activities.Digest `json:"address"`
}

func (c *connection) origin() origin { return origin{c.name, c.id, c.address} }

// kept is the content of journal.Applied of a checkpoint.
type kept struct {
	Of     origin            `json:"of"`
	Digest string            `json:"digest"` // of the file
	Result activities.Result `json:"result"`
}

// findKept finds the checkpoint with a name of a database.
func (w *world) findKept(name string, of origin) (file string, k kept, err error) {
	token, err := tokenOf(name)
	if err != nil {
		return "", k, err
	}
	t, err := w.folder.Token(token)
	if err != nil {
		return "", k, err
	}
	var rec journal.Owned
	found, err := t.Read(journal.Record, &rec)
	if err != nil {
		return "", k, err
	}
	if found = found && rec.Entry.Action == keepSpec.Name; found {
		if found, err = t.Read(journal.Applied, &k); err != nil {
			return "", k, err
		}
	}
	file = w.keptFile(token)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		fate, err := t.Fate()
		if err != nil {
			return "", k, err
		}
		found = found && fate == journal.Undecided // else it is gone, and should not be
	}
	switch {
	case !found:
		err = refused(
			"checkpoint: there is no %s on this worker: it was never made here, was undone, or its record was released", name)
	case k.Of.Database != of.Database:
		err = refused("checkpoint: %s is of the database %s, and the step names %s", name, k.Of.Database, of.Database)
	case k.Of.Journal != of.Journal && k.Of.Address != of.Address:
		err = refused("checkpoint: %s is of another database: what the worker's config calls %s had another address then, "+
			"and %s in it another id; correct the address, or take another checkpoint", name, of.Database, journalKey)
	}
	return file, k, err
}

// readKept reads the checkpoint with a name.
func (w *world) readKept(name string, of origin) (keyspace, error) {
	file, k, err := w.findKept(name, of)
	if err != nil {
		return nil, err
	}
	return readFile(file, k.Digest)
}

// readFile reads a file with a keyspace that has a digest.
func readFile(path, digest string) (k keyspace, err error) {
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it is gone")
	case err != nil:
		return nil, err
	case digestHex(raw) != digest:
		err = errors.New("its content is not what the step has written")
	default:
		k, err = decodeKeyspace(raw)
	}
	if err != nil {
		return nil, activities.Errorf(activities.DamagedRecord,
			"%s: %v; nothing was touched; bring it back, or decide what becomes of the step", path, err)
	}
	return k, nil
}

func digestHex(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// writeFile writes a keyspace to a new file, which is on the disk then but for its name.
func writeFile(path string, k keyspace) (digest string, size int64, err error) {
	raw := k.encode()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = fsync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(path))
	}
	return digestHex(raw), int64(len(raw)), nil
}

// fsync is replaced by a test that looks at what is there whenever something reaches the disk.
var fsync = (*os.File).Sync

// newAttempt is a name that no other attempt of a step has.
func newAttempt() string { return rand.Text() }

// removeNamed removes what begins with a prefix from the folder of a token, but for one name.
func removeNamed(t *journal.Token, prefix, but string) error {
	entries, err := os.ReadDir(t.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.Name() != but {
			err = errors.Join(err, removeFile(filepath.Join(t.Dir(), e.Name())))
		}
	}
	return err
}
