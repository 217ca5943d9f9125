package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
)

// manifest is what a database contains, by what people call it: "table data public.account". The
// schemas of Unwind are left out. Two databases with equal manifests have the same content, in
// whatever order their rows lie.
type manifest map[string]item

// item is an object of a database, the rows of a table, or the position of a sequence.
type item struct {
	Digest   string `json:"digest"`
	Rows     int64  `json:"rows"` // -1: it has none
	Position bool   `json:"position,omitempty"`
}

// content leaves out where sequences stand: they move without anybody having changed anything.
func (m manifest) content() manifest {
	left := maps.Clone(m)
	maps.DeleteFunc(left, func(_ string, i item) bool { return i.Position })
	return left
}

// digest is equal for manifests with equal content.
func (m manifest) digest() activities.Digest { return m.content().exact() }

// exact is equal for equal manifests.
func (m manifest) exact() activities.Digest {
	var parts [][]byte
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, []byte(name), []byte(m[name].Digest))
	}
	return activities.DigestOf(parts...)
}

// diffLines bounds what a person is shown.
const diffLines = 100

// differs names what is another one in now.
func (m manifest) differs(now manifest) []string {
	names := maps.Clone(m)
	maps.Copy(names, now)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool {
		was, had := m[name]
		is, has := now[name]
		return had && has && was.Digest == is.Digest
	})
}

// rows is how many rows all tables have.
func (m manifest) rows() (n int64) {
	for _, each := range m {
		n += max(each.Rows, 0)
	}
	return n
}

// diff says what is another one in now.
func (m manifest) diff(now manifest) string {
	var lines []string
	for _, name := range m.differs(now) {
		was, had := m[name]
		is, has := now[name]
		switch {
		case !has && was.Rows >= 0:
			lines = append(lines, fmt.Sprintf("- %s: %s", name, activities.CountOf(was.Rows, "row")))
		case !has:
			lines = append(lines, "- "+name)
		case !had && is.Rows >= 0:
			lines = append(lines, fmt.Sprintf("+ %s: %s", name, activities.CountOf(is.Rows, "row")))
		case !had:
			lines = append(lines, "+ "+name)
		case was.Rows >= 0:
			lines = append(lines,
				fmt.Sprintf("~ %s: %s then, %d now, with other values", name, activities.CountOf(was.Rows, "row"), is.Rows))
		case was.Position:
			lines = append(lines, "~ "+name+": another one")
		default:
			lines = append(lines, "~ "+name+": defined in another way")
		}
	}
	if more := len(lines) - diffLines; more > 0 {
		lines = append(lines[:diffLines], fmt.Sprintf("... and %d more", more))
	}
	return strings.Join(lines, "\n")
}

var (
	header = regexp.MustCompile(`^-- (Data for )?Name: (.*); Type: ([^;]*); Schema: (.*); Owner: (.*)$`)
	// ambient are the lines of a script that belong to no object: they depend on the program, on the
	// order of objects, and on chance.
	ambient = regexp.MustCompile(
		`^(--|-- PostgreSQL database dump complete|\\(connect|restrict|unrestrict) .*|` +
			`SELECT pg_catalog\.set_config\('search_path', '', false\);|` +
			`SET (default_tablespace|default_table_access_method|statement_timeout|lock_timeout|` +
			`idle_in_transaction_session_timeout|transaction_timeout|client_encoding|` +
			`standard_conforming_strings|check_function_bodies|xmloption|client_min_messages|row_security) = .*;)$`)
	// The list of a dump names a trigger after its table.
	ourTrigger = regexp.MustCompile(` !unwind( (insert|update|delete))?$`)
)

// readManifest reads the script that pg_dump or pg_restore --create writes of the database with
// this name, as quoted there.
func readManifest(script io.Reader, database string) (manifest, error) {
	m := manifest{}
	in := bufio.NewReaderSize(script, 64<<10)
	r := manifestReader{into: m, database: database}
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			var rest []byte
			line = bytes.Clone(line) // the buffer is used again
			rest, err = in.ReadBytes('\n')
			line = append(line, rest...)
		}
		if len(line) > 0 {
			r.take(bytes.TrimSuffix(line, []byte("\n")))
		}
		if errors.Is(err, io.EOF) {
			r.end()
			return m, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// manifestReader reads a script line by line.
type manifestReader struct {
	into     manifest
	database string

	name       string // of the object that the lines belong to; empty: none that counts
	text       hash.Hash
	blank      int  // empty lines that nothing has followed yet
	isData     bool // the object is the rows of a table
	isPosition bool
	inRows     bool
	rows       int64
	sum        rowSum
}

// rowSum is the sum of the digests of rows, modulo 2^256, lowest word first: their order does not
// matter.
type rowSum [4]uint64

func (s *rowSum) add(digest [sha256.Size]byte) {
	var carry uint64
	for i := range s {
		s[i], carry = bits.Add64(s[i], binary.BigEndian.Uint64(digest[sha256.Size-8*(i+1):]), carry)
	}
}

func (r *manifestReader) take(line []byte) {
	if r.inRows {
		if string(line) == `\.` {
			r.inRows = false
			return
		}
		r.sum.add(sha256.Sum256(line))
		r.rows++
		return
	}
	if found := header.FindStringSubmatch(string(line)); found != nil {
		r.end()
		r.begin(found[2], found[3], found[4], found[5])
		return
	}
	switch {
	case r.name == "" || ambient.Match(line):
		return
	case len(line) == 0:
		r.blank++
		return
	}
	text := string(line)
	if strings.HasSuffix(r.name, " of the database") {
		text = strings.ReplaceAll(text, "DATABASE "+r.database+" ", "DATABASE ")
	}
	fmt.Fprintf(r.text, "%s%s\n", strings.Repeat("\n", r.blank), text)
	r.blank = 0
	r.inRows = r.isData && strings.HasPrefix(text, "COPY ") && strings.HasSuffix(text, " FROM stdin;")
}

func (r *manifestReader) begin(name, kind, of, owner string) {
	r.name, r.text, r.blank, r.rows, r.sum = "", sha256.New(), 0, 0, rowSum{}
	r.isData, r.isPosition = kind == "TABLE DATA", kind == "SEQUENCE SET"
	isOurs := schema.IsJournal(of) || kind == "SCHEMA" && schema.IsJournal(name) ||
		of == "-" && strings.HasPrefix(name, "SCHEMA ") && schema.IsJournal(strings.TrimPrefix(name, "SCHEMA "))
	if isOurs || kind == "TRIGGER" && ourTrigger.MatchString(name) {
		return
	}
	switch {
	case strings.HasPrefix(kind, "DATABASE"), of == "-" && strings.HasPrefix(name, "DATABASE "):
		r.name = strings.ToLower(kind) + " of the database"
	case r.isPosition:
		r.name = "position of sequence " + of + "." + name
	case of == "-":
		r.name = strings.ToLower(kind) + " " + name
	default:
		r.name = strings.ToLower(kind) + " " + of + "." + name
	}
	fmt.Fprintln(r.text, owner)
}

func (r *manifestReader) end() {
	if r.name == "" {
		return
	}
	one := item{Rows: -1, Position: r.isPosition}
	if r.isData {
		one.Rows = r.rows
		fmt.Fprintln(r.text, r.rows, r.sum)
	}
	one.Digest = hex.EncodeToString(r.text.Sum(nil))
	if other, twice := r.into[r.name]; twice { // an object in several parts
		one.Digest = string(activities.DigestOf([]byte(other.Digest), []byte(one.Digest)))
		one.Rows = max(one.Rows, other.Rows)
	}
	r.into[r.name] = one
	r.name = ""
}
