package redis

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

// execParams are the parameters of redis.exec.
type execParams struct {
	Database string  `json:"database" jsonschema:"the name of one of the worker's redis.databases"`
	Commands [][]any `json:"commands" jsonschema:"the commands, in order, each a list of its name and its arguments: texts, numbers, booleans"`
}

const (
	maxCommands  = 1000
	maxArguments = 5000
	maxBytes     = 16 << 20 // of all keys of a step, in the memory of the server
	maxElements  = 100_000  // of all keys of a step
)

var execSpec = activities.Spec{
	Name: "redis.exec", Summary: "Runs commands on a Redis database as one atomic unit.",
	Params: activities.ParamsSchema[execParams](), UndoParams: []string{"database"},
	Outputs: map[string]string{
		"replies": "what each command returned, in order; long ones are cut",
		"changed": "how many keys came, went or changed",
	},
	Keys: []activities.Key{{Prefix: keyPrefix, Param: "database"}}, Risk: activities.Medium, Preflights: true,
	Strategy: activities.Transaction,
	Undo: "Puts every key back as it was, with the time at which it expires, in one atomic unit; a key that would " +
		"have expired since does not come back. " +
		"Clients that wait for a key or listen to changes of keys are not told that they are undone.",
}

const keyPrefix = "redis:"

// command is one command.
type command struct {
	where string
	args  []string
}

// readParams decodes the parameters, with numbers as they are written.
func readParams(raw json.RawMessage) (execParams, error) {
	if _, err := activities.DecodeParams[execParams](raw); err != nil {
		return execParams{}, err
	}
	var p execParams
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return p, d.Decode(&p)
}

// list returns the commands as texts.
func (p execParams) list() ([]command, error) {
	if len(p.Commands) == 0 || len(p.Commands) > maxCommands {
		return nil, refused("commands: give 1 to %d commands, each as a list such as [SET, key, value]; there are %d",
			maxCommands, len(p.Commands))
	}
	all := make([]command, len(p.Commands))
	for i, given := range p.Commands {
		all[i].where = fmt.Sprintf("commands[%d]", i)
		if len(given) == 0 || len(given) > maxArguments {
			return nil, refused("%s: give a name and its arguments, 1 to %d in all; there are %d", all[i].where, maxArguments,
				len(given))
		}
		for n, arg := range given {
			switch arg := arg.(type) {
			case string:
				all[i].args = append(all[i].args, arg)
			case json.Number, bool:
				all[i].args = append(all[i].args, fmt.Sprint(arg))
			default:
				return nil, refused("%s: argument %d must be a text, a number or a boolean", all[i].where, n)
			}
		}
	}
	return all, nil
}

func refused(format string, args ...any) error {
	return activities.Errorf(activities.Refused, format, args...)
}
