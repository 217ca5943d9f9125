package redis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

const shownKeys = 50

// content is what a key holds, as far as it is shown.
type content struct {
	sum     string // of the content; empty where the key is not there
	expires string // milliseconds, or -1
	kind    string // "none" where it is not there, "?" where it is not known
	count   int64
	items   []any
	more    int64 // items that are not shown
}

// keyChange is a key before and after: of the items of each, those that the other lacks.
type keyChange struct {
	key           string
	before, after content
}

func readKeyChange(a answer) keyChange {
	return keyChange{key: a.text("key"), before: a.content("before"), after: a.content("after")}
}

func (k keyChange) isUnchanged() bool {
	return k.before.kind == k.after.kind && k.before.sum == k.after.sum && k.before.expires == k.after.expires
}

func summarize(changes []keyChange) string {
	n := countChanges(changes)
	return keyvalue.DescribeChanges(n)
}

// countChanges counts the keys that come, that go and that change.
func countChanges(changes []keyChange) (n [3]int) {
	for _, k := range changes {
		switch {
		case k.isUnchanged():
		case k.before.kind == "none":
			n[0]++
		case k.after.kind == "none":
			n[1]++
		default:
			n[2]++
		}
	}
	return n
}

// showKeys shows keys that change, each with what goes and what comes.
func (c *connection) showKeys(changes []keyChange) string {
	var b strings.Builder
	shown := 0
	for _, k := range changes {
		if k.isUnchanged() {
			continue
		}
		if shown++; shown > shownKeys {
			continue
		}
		fmt.Fprintf(&b, "%s: %s -> %s\n", strconv.Quote(k.key), k.before.describe(), k.after.describe())
		hidden := keyvalue.MatchesAny(c.Sensitive, k.key)
		k.before.show(&b, "- ", hidden)
		k.after.show(&b, "+ ", hidden)
	}
	if shown > shownKeys {
		fmt.Fprintf(&b, "... and %s\n", activities.CountOf(shown-shownKeys, "more key"))
	}
	return b.String()
}

var units = map[string]string{"string": "byte", "list": "element", "set": "member", "hash": "field", "zset": "member",
	"stream": "entry"}

// describe says what a key is.
func (v content) describe() string {
	switch v.kind {
	case "none":
		return "not there"
	case "?":
		return "not known: the server has no free logical database for a rehearsal"
	}
	text := v.kind + ", " + activities.CountOf(v.count, units[v.kind])
	if ms, err := strconv.ParseInt(v.expires, 10, 64); err == nil && ms >= 0 {
		text += ", expires " + time.UnixMilli(ms).UTC().Format(time.RFC3339)
	}
	return text
}

// show lists items, each on a line of its own.
func (v content) show(b *strings.Builder, sign string, hidden bool) {
	for _, item := range v.items {
		line := "***"
		if !hidden {
			line = showItem(list(item))
		}
		b.WriteString(sign + line + "\n")
	}
	if v.more > 0 {
		fmt.Fprintf(b, "%s... and %d more\n", sign, v.more)
	}
}

func showItem(parts []any) string {
	all := make([]string, len(parts))
	for i, each := range parts {
		all[i] = showValue(each)
	}
	return strings.Join(all, " ")
}

func showValue(v any) string {
	switch v := v.(type) {
	case []any:
		all := make([]string, len(v))
		for i, each := range v {
			all[i] = showValue(each)
		}
		return "[" + strings.Join(all, " ") + "]"
	case nil:
		return "none"
	case string:
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}
