package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// Documents and files of a token besides those of package journal.
const (
	takenDoc = "taken" // the same as journal.Applied, which alone could be lost
	// contentsDoc is what a copy contains, as it was first read.
	contentsDoc = "contents"
	dumpPrefix  = "dump-"
)

// checkpoint is the document journal.Applied of postgres.checkpoint.
type checkpoint struct {
	Of      string `json:"of"`      // the name of the database in the worker's config
	ID      string `json:"id"`      // of the database
	Version int    `json:"version"` // of its server
	Quoted  string `json:"quoted"`  // the name of the database in statements
	// File is a dump, Digest its digest, and Content what it contains.
	File    string            `json:"file,omitempty"`
	Digest  string            `json:"digest,omitempty"`
	Content activities.Digest `json:"content,omitempty"`
	// Copy is a database on the server, and Properties the statements that give a database what a copy
	// does not get.
	Copy       string            `json:"copy,omitempty"`
	Properties []string          `json:"properties,omitempty"`
	Result     activities.Result `json:"result"`
}

// report sets the result of the step.
func (taken *checkpoint) report(size int64, token string) {
	taken.Result = activities.Result{
		Summary: fmt.Sprintf("a checkpoint of %s, %s", taken.Of, activities.CountOf(size, "byte")),
		Outputs: map[string]any{"checkpoint": namePrefix + token, "bytes": size},
	}
}

// readTaken reads what a forward has taken; found is false if none has.
func readTaken(token *journal.Token) (taken checkpoint, found bool, err error) {
	if found, err = token.Read(journal.Applied, &taken); err == nil && !found {
		found, err = token.Read(takenDoc, &taken)
	}
	return taken, found, err
}

// content is what the checkpoint contained when it was taken, though it may be gone since; empty for
// a copy that nobody has read.
func (taken checkpoint) content(token *journal.Token) (activities.Digest, error) {
	if taken.Copy == "" {
		return taken.Content, nil
	}
	var m manifest
	found, err := token.Read(contentsDoc, &m)
	if err != nil || !found {
		return "", err
	}
	return m.digest(), nil
}

// image is a checkpoint as it is kept.
type image interface {
	// read says what it contains. It is DamagedRecord where it is not as the step has kept it.
	read() (manifest, error)
	// verify reads all of it.
	verify() (manifest, error)
	// makeFresh makes a database from it beside the others, for a token, and returns its name, also with
	// an error if there may be one.
	makeFresh(m *server.Connection, token string) (name string, err error)
	// describe says how a database is made from it.
	describe() string
}

func (taken checkpoint) image(c *server.Connection, token *journal.Token, application string) (image, error) {
	if taken.Copy != "" {
		return &copied{c, taken, token, application}, nil
	}
	t, err := newTools(c, maintenance, application)
	return &dump{t, filepath.Join(token.Dir(), taken.File), taken}, err
}

// dump is an image that pg_dump has written.
type dump struct {
	*tools

	file  string
	taken checkpoint
}

func (d *dump) read() (manifest, error) {
	digest, err := durable.DigestFile(d.file, nil)
	if err != nil || digest != d.taken.Digest {
		why := "its content is not what the step has written"
		if err != nil {
			why = err.Error()
		}
		return nil, activities.Errorf(activities.DamagedRecord,
			"the checkpoint %s: %s; nothing was touched: put the file back, or decide what becomes of the step", d.file, why)
	}
	return d.manifestOf(d.file, d.taken.Quoted)
}

func (d *dump) verify() (manifest, error) { return d.read() }

func (d *dump) makeFresh(m *server.Connection, token string) (string, error) {
	return d.restoreFresh(m, token, d.file, d.taken.Quoted)
}

func (d *dump) describe() string {
	return "it is made from a dump, by pg_restore"
}

// retryable reports whether an error of the server may be another one next time.
func retryable(err error) bool { return server.IsCode(err, "40", "53", "55", "57", "08", "58", "XX") }

// removeDumps removes the dumps of a token.
func removeDumps(token *journal.Token) error {
	entries, err := os.ReadDir(token.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), dumpPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(token.Dir(), e.Name())))
		}
	}
	return err
}
