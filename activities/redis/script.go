package redis

import (
	"embed"
	"errors"
	"fmt"
	"strconv"

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
)

//go:embed scripts/*.lua
var sources embed.FS

// journalKey is the hash that holds everything of ours.
const journalKey = "unwind:journal"

// The scripts. An undo may run where the memory is full: it may be what frees it.
var (
	planScript    = loadScript("plan", "")
	applyScript   = loadScript("apply", "")
	seeScript     = loadScript("see", "no-writes,allow-oom")
	fenceScript   = loadScript("fence", "allow-oom")
	undoScript    = loadScript("undo", "allow-oom")
	releaseScript = loadScript("release", "allow-oom")
	amendScript   = loadScript("amend", "allow-oom")

	captureScript  = loadScript("capture", "no-writes,allow-oom")
	sumsScript     = loadScript("sums", "allow-oom")
	formatScript   = loadScript("format", "allow-oom")
	closeScript    = loadScript("close", "allow-oom")
	adoptScript    = loadScript("adopt", "allow-oom")
	exchangeScript = loadScript("exchange", "")
	takeBackScript = loadScript("exchange", "allow-oom")
)

func loadScript(name, flags string) *client.Script {
	shared, err1 := sources.ReadFile("scripts/journal.lua")
	own, err2 := sources.ReadFile("scripts/" + name + ".lua")
	if err := errors.Join(err1, err2); err != nil {
		panic(err) // a mistake in the source, found by any test
	}
	return client.NewScript("#!lua flags=" + flags + "\n" + string(shared) + string(own))
}

// answer is what a script returns, or a part of it: values by name.
type answer map[string]any

// run runs a script with the journal as its first key. It returns an error if the journal is not
// the one that the call expects.
func (c *connection) run(script *client.Script, keys []string, args ...any) (answer, error) {
	reply, err := script.Run(c.ctx, c.client, append([]string{journalKey}, keys...), args...).Result()
	if err != nil {
		return nil, c.explain(err)
	}
	a := readAnswer(reply)
	if a.text("happened") == "journal" {
		return nil, c.explainJournal(a.text("id"))
	}
	return a, nil
}

// explainJournal says what it means that the journal has another id; empty if there is none.
func (c *connection) explainJournal(is string) error {
	if is == "" {
		return activities.Errorf(activities.DamagedRecord,
			"database %s: its journal (%s), in which the undo records are, is gone: the server has restarted without its data, "+
				"was flushed, or has evicted it; nothing was touched; bring its data back, or decide what becomes of the step",
			c.name, journalKey)
	}
	return activities.Errorf(activities.WrongPlace,
		"the record is in journal %s; what this worker's config calls %s has journal %s: it is another database, or its "+
			"journal was lost with its data",
		c.id, c.name, is)
}

// readAnswer reads a list of names, each with its value behind it.
func readAnswer(reply any) answer {
	all, a := list(reply), answer{}
	for i := 0; i+1 < len(all); i += 2 {
		a[text(all[i])] = all[i+1]
	}
	return a
}

func (a answer) text(name string) string { return text(a[name]) }

func (a answer) number(name string) int64 {
	n, _ := strconv.ParseInt(a.text(name), 10, 64) // none counts as 0
	return n
}

// part is a value that has parts itself.
func (a answer) part(name string) answer { return readAnswer(a[name]) }

// parts are those of a list.
func (a answer) parts(name string) (parts []answer) {
	for _, each := range list(a[name]) {
		parts = append(parts, readAnswer(each))
	}
	return parts
}

// content is a part that describes a key.
func (a answer) content(name string) content {
	p := a.part(name)
	c := content{sum: p.text("sum"), expires: p.text("expires"), kind: p.text("kind"), count: p.number("count"),
		items: list(p["items"])}
	c.more = p.number("total") - int64(len(c.items))
	return c
}

// text is a reply of the server as text; empty if there is none.
func text(reply any) string {
	if reply == nil {
		return ""
	}
	return fmt.Sprint(reply)
}

// list is a reply of the server that is a list.
func list(reply any) []any {
	all, _ := reply.([]any)
	return all
}
