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
)

func loadScript(name, flags string) *client.Script {
	shared, err1 := sources.ReadFile("scripts/journal.lua")
	own, err2 := sources.ReadFile("scripts/" + name + ".lua")
	if err := errors.Join(err1, err2); err != nil {
		panic(err) // a mistake in the source, found by any test
	}
	return client.NewScript("#!lua flags=" + flags + "\n" + string(shared) + string(own))
}

// answer is what a script returns: what happened, and more.
type answer []any

// run runs a script with the journal as its first key. It returns an error if the journal is not the one that the call expects.
func (c *connection) run(script *client.Script, keys []string, args ...any) (answer, error) {
	reply, err := script.Run(c.ctx, c.client, append([]string{journalKey}, keys...), args...).Result()
	if err != nil {
		return nil, c.explain(err)
	}
	all, _ := reply.([]any)
	a := answer(all)
	if a.word() == "journal" {
		return nil, c.explainJournal(a.text(1))
	}
	return a, nil
}

// explainJournal says what it means that the journal has another id; empty if there is none.
func (c *connection) explainJournal(is string) error {
	if is == "" {
		return activities.Errorf(activities.DamagedRecord, "database %s: its journal (%s), in which the undo records are, is gone: the server has restarted without its data, "+
			"was flushed, or has evicted it; nothing was touched; bring its data back, or decide what becomes of the step", c.name, journalKey)
	}
	return activities.Errorf(activities.WrongPlace, "the record is in journal %s; what this worker's config calls %s has journal %s: it is another database, or its journal was lost with its data",
		c.id, c.name, is)
}

// word is what happened.
func (a answer) word() string { return a.text(0) }

// text is a part of an answer as text; empty if there is none.
func (a answer) text(at int) string {
	if at >= len(a) || a[at] == nil {
		return ""
	}
	return fmt.Sprint(a[at])
}

func (a answer) number(at int) int64 {
	n, _ := strconv.ParseInt(a.text(at), 10, 64) // none counts as 0
	return n
}

// list is a part of an answer that is a list.
func (a answer) list(at int) answer {
	if at >= len(a) {
		return nil
	}
	all, _ := a[at].([]any)
	return all
}
