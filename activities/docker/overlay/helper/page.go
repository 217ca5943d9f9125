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

	"github.com/seed-62bf7108/unwind/internal/durable"
)

// A book is stored as two pages, overwritten in turn: a disk then has no metadata to sync, which
// takes a fifth of the time of a new file. The newer complete page counts; one whose write was
// interrupted is incomplete.
var pageNames = [2]string{"page-0", "page-1"}

// page is the content of a page: a line that begins with its digest. Anything after the line is
// left of a longer one.
type page struct {
	// Number grows with each page; 0 is none.
	Number int `json:"number"`
	// Told: the write was not synced. The next page overwrites this one, not the other, which is on
	// the disk.
	Told bool            `json:"told,omitempty"`
	Book json.RawMessage `json:"book"`

	place  int
	digest string
}

// newestPage finds the newer complete page and returns its line, of which only the number is
// parsed; 0 if there is no page.
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
		digest, content, whole := parsePage(raw)
		if number := parseNumber(content); whole && number > newest.Number {
			newest, line = page{Number: number, place: place, digest: digest}, content
		}
	}
	if found && newest.Number == 0 {
		return page{}, nil, errors.New("neither of its pages is complete")
	}
	return newest, line, nil
}

// parsePage is what a page holds, if it is complete.
func parsePage(raw []byte) (digest string, line []byte, whole bool) {
	line, _, _ = bytes.Cut(raw, []byte("\n"))
	said, line, _ := bytes.Cut(line, []byte(" "))
	digest = string(said)
	return digest, line, digest == digestLine(line)
}

// parseNumber is the number in a line, its first field.
func parseNumber(line []byte) int {
	var number int
	_, _ = fmt.Sscanf(string(line[:min(len(line), 40)]), `{"number":%d,`, &number)
	return number
}

// line encodes the page: json.Marshal would parse the whole book again.
func (p page) line() []byte {
	head, _ := json.Marshal(struct {
		Number int  `json:"number"`
		Told   bool `json:"told,omitempty"`
	}{p.Number, p.Told})
	return slices.Concat(head[:len(head)-1], []byte(`,"book":`), p.Book, []byte("}"))
}

func digestLine(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// pageSize: the sizes of pages are multiples of this, because growth makes a disk sync metadata
// too.
const pageSize = 4096

// writeNext writes the page after p, and returns it.
func (p page) writeNext(dir string, book []byte, told bool) (page, error) {
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
	to.Book, to.digest = nil, digestLine(line)
	line = slices.Concat([]byte(to.digest+" "), line, []byte("\n"))
	if f == nil {
		err = durable.Replace(name, padToPage(line))
	} else {
		err = overwritePage(f, line, told)
	}
	if err != nil {
		return p, err
	}
	return to, nil
}

// overwritePage writes a page in place.
func overwritePage(f *os.File, line []byte, told bool) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if int64(len(line)) > now.Size() {
		line = padToPage(line)
	}
	if _, err := f.WriteAt(line, 0); err != nil || told {
		return err
	}
	return unix.Fdatasync(int(f.Fd()))
}

func padToPage(line []byte) []byte {
	size := (2*len(line) + pageSize - 1) / pageSize * pageSize
	return append(line, bytes.Repeat([]byte("\n"), size-len(line))...)
}
