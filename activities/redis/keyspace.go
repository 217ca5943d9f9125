package redis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// keyspace is what a whole database holds: all keys by their names, but for ours.
type keyspace map[string]value

// value is what a key holds.
type value struct {
	dump    string // as DUMP has it
	expires int64  // in milliseconds since 1970; never: -1
}

// never is when a key expires that does not.
const never = -1

// isOver reports whether a key would have expired by a time.
func (v value) isOver(now int64) bool { return v.expires != never && v.expires <= now }

// alive are the keys that have not expired by a time.
func (k keyspace) alive(now int64) keyspace {
	left := maps.Clone(k)
	maps.DeleteFunc(left, func(_ string, v value) bool { return v.isOver(now) })
	return left
}

// kindsByType are the types of keys, by the byte with which DUMP begins. What is not among them is of a
// module, or has something that is not known here, such as fields that expire.
var kindsByType = map[byte]string{
	0: "string", 1: "list", 10: "list", 14: "list", 18: "list", 2: "set", 11: "set", 20: "set",
	4: "hash", 9: "hash", 13: "hash", 16: "hash", 3: "zset", 5: "zset", 12: "zset", 17: "zset",
	15: "stream", 19: "stream", 21: "stream",
}

// footer is how many bytes follow the content in what DUMP has: the version of its format, and a sum.
const footer = 10

func (v value) kind() string { return kindsByType[v.dump[0]] }

// version is that of the format of the dump.
func (v value) version() int {
	return int(binary.LittleEndian.Uint16([]byte(v.dump[len(v.dump)-footer:])))
}

// checkKnown is an error where nobody can tell what a value holds.
func (v value) checkKnown() error {
	if len(v.dump) <= footer {
		return errors.New("it is cut")
	}
	if v.kind() == "" {
		return fmt.Errorf("the server stores it in a way that is not known here (%d): it has a type of a module, or fields "+
			"that expire", v.dump[0])
	}
	return nil
}

// sum is a digest of a value by which a script notices that a key has changed.
func (v value) sum() string { return sha1Hex(v.expiry() + " " + v.dump) }

func (v value) expiry() string { return strconv.FormatInt(v.expires, 10) }

// fileStart begins a file with a keyspace.
const fileStart = "unwind redis 1\n"

// encode is the content of a file with a keyspace.
func (k keyspace) encode() []byte {
	out := []byte(fileStart)
	for _, key := range slices.Sorted(maps.Keys(k)) {
		for _, part := range []string{key, k[key].dump} {
			out = append(binary.AppendUvarint(out, uint64(len(part))), part...)
		}
		out = binary.AppendVarint(out, k[key].expires)
	}
	return out
}

// decodeKeyspace reads all of a file.
func decodeKeyspace(raw []byte) (keyspace, error) {
	rest, is := bytes.CutPrefix(raw, []byte(fileStart))
	if !is {
		return nil, errors.New("it does not begin as it should")
	}
	in, k := bytes.NewReader(rest), keyspace{}
	for in.Len() > 0 {
		key, err := readPart(in)
		if err != nil {
			return nil, err
		}
		var v value
		if v.dump, err = readPart(in); err == nil {
			v.expires, err = binary.ReadVarint(in)
		}
		if err == nil {
			err = v.checkKnown()
		}
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		k[key] = v
	}
	return k, nil
}

func readPart(in *bytes.Reader) (string, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil || n > uint64(in.Len()) { //nolint:gosec // a length is not below zero
		return "", errors.New("it is cut")
	}
	part := make([]byte, n)
	_, _ = in.Read(part) // there are as many
	return string(part), nil
}

// difference is a key that two keyspaces have in different ways; nil stands for a key that is not
// there. The sums are of what the values hold.
type difference struct {
	key            string
	was, is        *value
	wasSum, nowSum string
}

// describe is a line: + is new, - is gone, ~ is another.
func (d difference) describe() string {
	key := strconv.Quote(d.key)
	switch {
	case d.was == nil:
		return fmt.Sprintf("+ %s (%s)", key, d.is.kind())
	case d.is == nil:
		return fmt.Sprintf("- %s (%s)", key, d.was.kind())
	}
	what := d.was.kind()
	if d.is.kind() != what {
		what += " -> " + d.is.kind()
	}
	if d.was.expires != d.is.expires {
		what += ", expires " + d.was.describeExpiry() + " -> " + d.is.describeExpiry()
	}
	return fmt.Sprintf("~ %s (%s)", key, what)
}

func (v value) describeExpiry() string {
	if v.expires == never {
		return "never"
	}
	return time.UnixMilli(v.expires).UTC().Format(time.RFC3339Nano)
}

// differences are what differs between two keyspaces, in the order of the names.
type differences []difference

func (d differences) describe() string {
	lines := make([]string, len(d))
	for i, each := range d {
		lines[i] = each.describe()
	}
	return strings.Join(lines, "\n")
}

// count counts the keys that come, that go and that change.
func (d differences) count() (n [3]int) {
	for _, each := range d {
		switch {
		case each.was == nil:
			n[0]++
		case each.is == nil:
			n[1]++
		default:
			n[2]++
		}
	}
	return n
}

// digest covers both sides.
func (d differences) digest(more ...string) activities.Digest {
	var parts [][]byte
	for _, each := range more {
		parts = append(parts, []byte(each))
	}
	for _, each := range d {
		parts = append(parts, []byte(each.key), []byte(each.wasSum+each.was.orNone()), []byte(each.nowSum+each.is.orNone()))
	}
	return activities.DigestOf(parts...)
}

func (v *value) orNone() string {
	if v == nil {
		return ""
	}
	return " " + v.expiry()
}

// compare says what differs between two keyspaces. It asks the server where two dumps differ: they
// may hold the same.
func (c *connection) compare(was, is keyspace) (found differences, err error) {
	var dumps []string
	for _, key := range slices.Sorted(maps.Keys(union(was, is))) {
		before, wasThere := was[key]
		now, isThere := is[key]
		if wasThere && isThere && before == now {
			continue
		}
		d := difference{key: key}
		if wasThere {
			d.was, dumps = &before, append(dumps, before.dump)
		}
		if isThere {
			d.is, dumps = &now, append(dumps, now.dump)
		}
		found = append(found, d)
	}
	sums, err := c.sum(dumps)
	if err != nil {
		return nil, err
	}
	for i, d := range found {
		if d.was != nil {
			found[i].wasSum = sums[d.was.dump]
		}
		if d.is != nil {
			found[i].nowSum = sums[d.is.dump]
		}
	}
	return slices.DeleteFunc(found, func(d difference) bool {
		return d.was != nil && d.is != nil && d.was.expires == d.is.expires && d.wasSum == d.nowSum
	}), nil
}

func union(a, b keyspace) keyspace {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
