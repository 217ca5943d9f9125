package manifest

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
)

// Save writes the manifest into a file of dir, whole or not at all. An empty one is known by its digest, and has no file.
func (m Manifest) Save(dir, name string) (err error) {
	if len(m) == 0 {
		return nil
	}
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	zip := gzip.NewWriter(f)
	lines := json.NewEncoder(zip)
	for _, at := range m.Paths() {
		if err := lines.Encode(m[at]); err != nil {
			return err
		}
	}
	if err := errors.Join(zip.Close(), f.Sync()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// Load reads what Save wrote, and refuses it unless it has the digest that the record holds.
func Load(dir, name string, want activities.Digest) (Manifest, error) {
	if want == (Manifest{}).Digest() {
		return Manifest{}, nil
	}
	damaged := func(err error) (Manifest, error) {
		return nil, activities.Errorf(activities.DamagedRecord, "manifest %s: %v", filepath.Join(dir, name), err)
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return damaged(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return damaged(err)
	}
	m := Manifest{}
	for lines := json.NewDecoder(zip); ; {
		var n Node
		if err := lines.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return damaged(err)
		}
		m[n.Path] = n
	}
	if m.Digest() != want {
		return damaged(errors.New("it does not match its digest"))
	}
	return m, nil
}
