package helper

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// A book is on the disk as two pages, written in turn and in place: so a disk has nothing to note but what is on the page,
// which takes it a fifth of the time that a new file takes. The newer one that is whole counts. A page that is being
// written, or was when the power went, is not whole.
var pageNames = [2]string{"page-0", "page-1"}

// firstName is where helpers kept the whole book that had no pages.
const firstName = "book.json"

// page is what a page holds: a line that begins with its digest. What follows the line is of a longer one before it.
type page struct {
	// Number grows with each page; 0 is none.
	Number int `json:"number"`
	// Told says that nobody waited until the page was on the disk. The next one takes its place, and not that of the other,
	// which is there.
	Told bool            `json:"told,omitempty"`
	Book json.RawMessage `json:"book"`

	place  int
	digest string
}

// newestPage finds the newer page that is whole, and returns its line, which is not read but for the number; that is 0 where
// there is none at all.
func newestPage(dir string) (newest page, line []byte, err error) {
	found := false
	for place, name := range pageNames {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return page{}, nil, err
		}
		found = true
		digest, content, whole := contentOf(raw)
		if number := numberOf(content); whole && number > newest.Number {
			newest, line = page{Number: number, place: place, digest: digest}, content
		}
	}
	if found && newest.Number == 0 {
		return page{}, nil, errors.New("neither of its pages is whole")
	}
	return newest, line, nil
}

// contentOf is what a page holds, if it is whole.
func contentOf(raw []byte) (digest string, line []byte, whole bool) {
	line, _, _ = bytes.Cut(raw, []byte("\n"))
	said, line, _ := bytes.Cut(line, []byte(" "))
	digest = string(said)
	return digest, line, digest == digestOf(line)
}

// numberOf is the number in a line, which is the first that a page has.
func numberOf(line []byte) int {
	var number int
	_, _ = fmt.Sscanf(string(line[:min(len(line), 40)]), `{"number":%d,`, &number)
	return number
}

// line is what is written of the page: json.Marshal would read all of the book again.
func (p page) line() []byte {
	head, _ := json.Marshal(struct {
		Number int  `json:"number"`
		Told   bool `json:"told,omitempty"`
	}{p.Number, p.Told})
	return slices.Concat(head[:len(head)-1], []byte(`,"book":`), p.Book, []byte("}"))
}

func digestOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// pageSize is what the sizes of pages are multiples of. A page that grows makes a disk note more than what is on it.
const pageSize = 4096

// next writes the page after p, and returns it.
func (p page) next(dir string, book []byte, told bool) (page, error) {
	to := page{Number: p.Number + 1, Told: told, Book: book, place: 1 - p.place}
	if p.Told {
		to.place = p.place
	}
	name := filepath.Join(dir, pageNames[to.place])
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	if f == nil {
		to.Told = false
	} else {
		defer f.Close()
	}
	line := to.line()
	to.Book, to.digest = nil, digestOf(line)
	line = slices.Concat([]byte(to.digest+" "), line, []byte("\n"))
	if f == nil {
		err = create(dir, name, line)
	} else {
		err = overwrite(f, line, told)
	}
	if err != nil {
		return p, err
	}
	return to, nil
}

// overwrite writes a page in place.
func overwrite(f *os.File, line []byte, told bool) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if int64(len(line)) > now.Size() {
		line = padded(line)
	}
	if _, err := f.WriteAt(line, 0); err != nil || told {
		return err
	}
	return unix.Fdatasync(int(f.Fd()))
}

// create makes the first page in its place, which is there whole or not at all.
func create(dir, name string, line []byte) error {
	f, err := os.CreateTemp(dir, ".page-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(padded(line))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(dir)
}

func padded(line []byte) []byte {
	size := (2*len(line) + pageSize - 1) / pageSize * pageSize
	return append(line, bytes.Repeat([]byte("\n"), size-len(line))...)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
