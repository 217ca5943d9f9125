package redis

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
)

// scene shows checks the outputs of the step, and its database once the commands have run.
type scene struct {
	*connection

	result activities.Result
}

// placeChecks refuses checks that would have to see the change before it is made.
func placeChecks(checks []activities.Check) error {
	for i, c := range checks {
		if c.When == activities.Staged {
			return refused("check[%d]: when: staged; the commands of a step on Redis run all at once: use live", i)
		}
	}
	return nil
}

func (s scene) Target() string { return s.name }

func (s scene) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name != s.name {
		return nil, refused("file %s: a check of a step on Redis sees only the outputs of the step, as the file %s; write a query check for all else", name, s.name)
	}
	return json.Marshal(s.result.Outputs)
}

func (s scene) Run(context.Context, []string) ([]byte, error) {
	return nil, errors.New("no command can run in Redis; use a query check, or a step of another world")
}

// Query runs a command that only reads, written in one line.
func (s scene) Query(_ context.Context, text string) (any, error) {
	cmd := command{where: "query", args: strings.Fields(text)}
	if len(cmd.args) == 0 {
		return nil, refused("query: give a command that reads, such as GET key")
	}
	found, err := s.findKeys([]command{cmd})
	if err != nil {
		return nil, err
	}
	if len(found.changed) > 0 {
		return nil, refused("query: %s changes keys; give a command that reads", strings.ToUpper(cmd.args[0]))
	}
	args := make([]any, len(cmd.args))
	for i, arg := range cmd.args {
		args[i] = arg
	}
	value, err := s.client.Do(s.ctx, args...).Result()
	if err != nil && !errors.Is(err, client.Nil) {
		return nil, s.explain(err)
	}
	return plain(value), nil
}
