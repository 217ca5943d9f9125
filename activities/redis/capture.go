package redis

import (
	"crypto/sha1" //nolint:gosec // it is what scripts have, and notices changes
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/seed-62bf7108/unwind/activities"
)

// A whole database is read, and made to hold something else, by one script each time, which holds up
// all other clients while it runs. So it may not be larger than this.
const (
	maxWhole     = 64 << 20 // bytes, as DUMP has the keys
	maxWholeKeys = 100_000
	// Of values, one script reads this many bytes, or this many values.
	summedBytes, summedValues = 4 << 20, 5000
)

// scratchKey is the name under which scripts look at values. They delete it before they end.
const scratchKey = "unwind:scratch"

func sha1Hex(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// capture reads the whole database as it is at one moment, and says which that is by the clock of the
// server.
func (c *connection) capture() (k keyspace, now int64, err error) {
	a, err := c.run(captureScript, nil, maxWhole, maxWholeKeys)
	if err != nil {
		return nil, 0, err
	}
	if a.text("happened") == "large" {
		return nil, 0, refused("database %s: it has more than %s or %d MB: one script cannot read or replace it at once, as "+
			"that would hold up all other clients for too long; nothing was changed; keep such a database by the server's own "+
			"means", c.name, activities.CountOf(maxWholeKeys, "key"), maxWhole>>20)
	}
	flat := list(a["keys"])
	k = make(keyspace, len(flat)/3)
	for i := 0; i+2 < len(flat); i += 3 {
		expires, err := strconv.ParseInt(text(flat[i+2]), 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("database %s: when a key expires is %q", c.name, text(flat[i+2]))
		}
		v := value{dump: text(flat[i+1]), expires: expires}
		if err := v.checkKnown(); err != nil {
			return nil, 0, refused("database %s: key %q: %v; nothing was changed; delete the key, or keep the database by the "+
				"server's own means", c.name, text(flat[i]), err)
		}
		k[text(flat[i])] = v
	}
	return k, a.number("now"), nil
}

// sum returns digests of what values hold, by their dumps.
func (c *connection) sum(dumps []string) (map[string]string, error) {
	sums := make(map[string]string, len(dumps))
	var args []any
	var bytes int
	ask := func() error {
		if len(args) == 0 {
			return nil
		}
		a, err := c.run(sumsScript, []string{scratchKey}, args...)
		if err != nil {
			return err
		}
		got := list(a["sums"])
		if len(got) != len(args) {
			return activities.Errorf(activities.DamagedRecord, "database %s: the server cannot read what was kept: %s", c.name,
				a.text("error"))
		}
		for i, each := range got {
			sums[text(args[i])] = text(each)
		}
		args, bytes = nil, 0
		return nil
	}
	for _, dump := range dumps {
		if _, asked := sums[dump]; asked {
			continue
		}
		sums[dump] = ""
		args, bytes = append(args, dump), bytes+len(dump)
		if bytes >= summedBytes || len(args) >= summedValues {
			if err := ask(); err != nil {
				return nil, err
			}
		}
	}
	return sums, ask()
}

// checkReadable refuses what the server is too old to read.
func (c *connection) checkReadable(k keyspace) error {
	a, err := c.run(formatScript, []string{scratchKey})
	if err != nil {
		return err
	}
	is := value{dump: a.text("dump")}
	if err := is.checkKnown(); err != nil {
		return fmt.Errorf("database %s: the format of the server: %w", c.name, err)
	}
	for key, v := range k {
		if v.version() > is.version() {
			return refused("database %s: key %q was kept from a newer server, in version %d of its format, and Redis %s reads "+
				"versions up to %d; nothing was changed", c.name, key, v.version(), c.info["redis_version"], is.version())
		}
	}
	return nil
}

// exchange makes the database hold something else, if it still holds what it was seen to hold and its
// token is in a state: then that is another one.
func (c *connection) exchange(token string, from, to wholeState, seen keyspace, changes differences) error {
	var expected, changed []string
	for key, v := range seen {
		expected = append(expected, key, v.sum(), v.expiry())
	}
	for _, d := range changes {
		if d.is == nil {
			changed = append(changed, d.key, "", "-1")
		} else {
			changed = append(changed, d.key, d.is.dump, d.is.expiry())
		}
	}
	script := exchangeScript
	if from != "" { // an undo may run where the memory is full
		script = takeBackScript
	}
	a, err := c.run(script, nil, c.id, token, string(from), string(to), packTexts(expected), packTexts(changed))
	if err != nil {
		return err
	}
	switch a.text("happened") {
	case "done":
		return nil
	case "fenced":
		return errOtherState
	case "moved":
		return errMoved
	}
	return fmt.Errorf("database %s: its keys cannot be put back, and were left as they are: %s", c.name, a.text("error"))
}

// packTexts writes a list of texts in MessagePack, which scripts read.
func packTexts(all []string) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0xdd}, uint32(len(all))) //nolint:gosec // far fewer
	for _, each := range all {
		out = append(binary.BigEndian.AppendUint32(append(out, 0xdb), uint32(len(each))), each...) //nolint:gosec // as above
	}
	return out
}
