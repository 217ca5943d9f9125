package redis

import (
	"errors"
	"slices"
	"strings"

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// touched are the keys of commands: those that they change, and those that they only read, each
// once.
type touched struct{ changed, read []string }

func (t touched) all() []string { return slices.Concat(t.changed, t.read) }

const (
	wayOutKeys   = "name the keys, as in [DEL, session:1, session:2]"
	wayOutUnit   = "the commands of a step are one atomic unit already; leave it out"
	wayOutServer = "it is no change of keys, and cannot be undone; let an operator do it"
	wayOutScript = "what a script touches cannot be known beforehand; write its commands into the step"
)

// escaping are commands that reach beyond the keys that the server finds in them, with the way out.
var escaping = map[string]string{
	"flushall": wayOutKeys, "flushdb": wayOutKeys, "keys": wayOutKeys, "scan": wayOutKeys, "dbsize": wayOutKeys,
	"randomkey": wayOutKeys,
	"multi":     wayOutUnit, "exec": wayOutUnit, "discard": wayOutUnit, "watch": wayOutUnit, "unwatch": wayOutUnit,
	"eval": wayOutScript, "eval_ro": wayOutScript, "evalsha": wayOutScript, "evalsha_ro": wayOutScript,
	"script": wayOutScript,
	"fcall":  wayOutScript, "fcall_ro": wayOutScript, "function": wayOutScript,
	"select":    "a step works on the logical database that the worker's config names",
	"move":      "it moves a key to another logical database; write the value there in a step of its own",
	"swapdb":    "it exchanges whole databases; let an operator do it",
	"migrate":   "it sends keys to another server; let an operator do it",
	"publish":   "a message cannot be called back; send it outside of the task",
	"spublish":  "a message cannot be called back; send it outside of the task",
	"subscribe": "a step cannot wait for messages", "psubscribe": "a step cannot wait for messages",
	"ssubscribe": "a step cannot wait for messages",
}

// findKeys asks the server for the keys of commands, and refuses a command that cannot be undone.
func (c *connection) findKeys(commands []command) (touched, error) {
	infos, keys := make([]*client.Cmd, len(commands)), make([]*client.Cmd, len(commands))
	for _, each := range commands {
		if err := each.checkName(); err != nil {
			return touched{}, err
		}
	}
	_, err := c.client.Pipelined(c.ctx, func(p client.Pipeliner) error {
		for i, each := range commands {
			args := []any{"COMMAND", "GETKEYSANDFLAGS"}
			for _, arg := range each.args {
				args = append(args, arg)
			}
			infos[i], keys[i] = p.Do(c.ctx, "COMMAND", "INFO", each.args[0]), p.Do(c.ctx, args...)
		}
		return nil
	})
	if err != nil && !hasCode(err, "ERR") { // that of one command is reported with its place
		return touched{}, c.explain(err)
	}
	var found touched
	for i, each := range commands {
		if err := c.addKeys(&found, each, infos[i], keys[i]); err != nil {
			return touched{}, err
		}
	}
	slices.Sort(found.changed)
	slices.Sort(found.read)
	found.changed = slices.Compact(found.changed)
	found.read = slices.DeleteFunc(slices.Compact(found.read),
		func(key string) bool { return slices.Contains(found.changed, key) })
	return found, c.checkLimits(found)
}

func hasCode(err error, code string) bool {
	said, isServers := errors.AsType[client.Error](err)
	return isServers && strings.HasPrefix(said.Error(), code+" ")
}

// checkName refuses by what is written.
func (cmd command) checkName() error {
	name := strings.ToLower(cmd.args[0])
	if wayOut, escapes := escaping[name]; escapes {
		return refused("%s: %s cannot be undone: %s", cmd.where, strings.ToUpper(name), wayOut)
	}
	switch {
	case name == "copy" &&
		slices.ContainsFunc(cmd.args[min(3, len(cmd.args)):], func(arg string) bool { return strings.EqualFold(arg, "db") }):
		return refused("%s: COPY with DB writes to another logical database; leave DB out", cmd.where)
	case (name == "sort" || name == "sort_ro") && cmd.readsByPattern():
		return refused("%s: %s with BY or GET reads keys by a pattern; sort by the elements themselves", cmd.where,
			strings.ToUpper(name))
	}
	return nil
}

// readsByPattern reports whether a SORT reads keys by a pattern: one without an asterisk, such as
// "nosort" or "#", names none.
func (cmd command) readsByPattern() bool {
	for i, arg := range cmd.args[:len(cmd.args)-1] {
		if i > 1 && (strings.EqualFold(arg, "by") || strings.EqualFold(arg, "get")) && strings.Contains(cmd.args[i+1], "*") {
			return true
		}
	}
	return false
}

// waits reports whether a command that may wait for others does.
func (cmd command) waits() bool {
	if name := strings.ToLower(cmd.args[0]); name != "xread" && name != "xreadgroup" {
		return true
	}
	for _, arg := range cmd.args {
		switch strings.ToLower(arg) {
		case "block":
			return true
		case "streams":
			return false
		}
	}
	return true
}

// addKeys adds the keys of one command.
func (c *connection) addKeys(found *touched, cmd command, info, keys *client.Cmd) error {
	name := strings.ToUpper(cmd.args[0])
	said := list(info.Val())
	if len(said) == 0 || len(list(said[0])) < 3 {
		return refused("%s: the server knows no command %s", cmd.where, name)
	}
	flags := list(list(said[0])[2])
	has := func(flag string) bool { return slices.Contains(flags, any(flag)) }
	switch {
	case has("blocking") && cmd.waits():
		return refused("%s: %s waits for others, and cannot be part of an atomic unit; use the command that does not wait",
			cmd.where, name)
	case has("pubsub"), has("noscript"), has("admin"):
		return refused("%s: %s cannot be undone: %s", cmd.where, name, wayOutServer)
	}
	if err := keys.Err(); err != nil {
		if !hasCode(err, "ERR") {
			return c.explain(err)
		}
		if strings.Contains(err.Error(), "no key arguments") || len(cmd.args) == 1 {
			return refused("%s: %s names no key: %s", cmd.where, name, wayOutServer)
		}
		return refused("%s: %s: the server finds no keys in it: %s", cmd.where, name, strings.TrimPrefix(err.Error(), "ERR "))
	}
	listed, _ := keys.Val().([]any)
	if len(listed) == 0 {
		return refused("%s: %s names no key: %s", cmd.where, name, wayOutServer)
	}
	for _, each := range listed {
		pair := list(each)
		key := text(pair[0])
		if strings.HasPrefix(key, "unwind:") {
			return refused("%s: key %q: keys that begin with unwind: hold the undo records", cmd.where, key)
		}
		if slices.Contains(list(pair[1]), any("RO")) && name != "XREADGROUP" { // it reads the stream, and writes to its group
			found.read = append(found.read, key)
		} else {
			found.changed = append(found.changed, key)
		}
	}
	return nil
}

const maxKeys = 2000

// checkLimits refuses keys that the worker's config does not allow, and too many of them.
func (c *connection) checkLimits(found touched) error {
	if n := len(found.changed) + len(found.read); n > maxKeys {
		return refused("commands: they name %s, and one step may name %d; make several steps of it",
			activities.CountOf(n, "key"), maxKeys)
	}
	return keyvalue.Limits{Config: configKey + "." + c.name, Allow: c.Allow, Deny: c.Deny}.Check(found.changed, found.read)
}

// flatten returns commands as the scripts take them.
func flatten(commands []command) []any {
	var all []any
	for _, each := range commands {
		all = append(all, len(each.args))
		for _, arg := range each.args {
			all = append(all, arg)
		}
	}
	return all
}

// unfit explains why a key cannot be part of a step.
func (c *connection) unfit(a answer) error {
	return refused("database %s: key %q %s; all keys of a step together may have %d MB and %s; nothing was changed",
		c.name, a.text("key"), a.text("problem"), maxBytes>>20, activities.CountOf(maxElements, "element"))
}

// failed explains a command that failed.
func (c *connection) failed(commands []command, a answer) error {
	n := int(a.number("command"))
	if n < 1 || n > len(commands) {
		return refused("database %s: %s; nothing was changed", c.name, a.text("error"))
	}
	cmd := commands[n-1]
	return activities.Errorf(activities.ActionDenied, "%s: %s: %s; nothing was changed", cmd.where,
		strings.ToUpper(cmd.args[0]), strings.TrimPrefix(a.text("error"), "ERR "))
}
