package manifest

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
)

// Save writes the manifest into a file of dir, whole or not at all, and returns its digest. An
// empty one is known by that, and has no file.
func (m Manifest) Save(dir, name string) (digest activities.Digest, err error) {
	if len(m) == 0 {
		return m.Digest(), nil
	}
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	zip, err := gzip.NewWriterLevel(f, gzip.BestSpeed) // a step waits for it
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if err := errors.Join(m.write(io.MultiWriter(zip, sum)), zip.Close(), f.Sync()); err != nil {
		return "", err
	}
	return digestOf(sum), os.Rename(f.Name(), filepath.Join(dir, name))
}

// write writes a line for each path. The digest covers these bytes.
func (m Manifest) write(to io.Writer) error {
	lines := json.NewEncoder(to)
	for _, at := range m.Paths() {
		if err := lines.Encode(m[at]); err != nil {
			return err
		}
	}
	return nil
}

// Digest covers every path.
func (m Manifest) Digest() activities.Digest {
	sum := sha256.New()
	_ = m.write(sum) // a struct of strings and numbers always encodes, and a hash takes all
	return digestOf(sum)
}

func digestOf(sum hash.Hash) activities.Digest {
	return activities.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))
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
	m, sum := Manifest{}, sha256.New()
	for lines := json.NewDecoder(io.TeeReader(zip, sum)); ; { // to the end, so that all of it is summed
		var n Node
		if err := lines.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return damaged(err)
		}
		m[n.Path] = n
	}
	if digestOf(sum) != want {
		return damaged(errors.New("it does not match its digest"))
	}
	return m, nil
}
