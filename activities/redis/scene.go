package redis

import (
	"context"
	"errors"
	"strings"

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// kind is what people call a database of this world.
const kind = "Redis"

// scene shows checks what a step has done.
func (c *connection) scene(result activities.Result) keyvalue.Scene {
	return keyvalue.Scene{Kind: kind, Name: c.name, Sensitive: c.Sensitive, Result: result, Read: c.query}
}

// query runs a command that only reads, written in one line.
func (c *connection) query(_ context.Context, text string) (value any, keys []string, err error) {
	cmd := command{where: "query", args: strings.Fields(text)}
	if len(cmd.args) == 0 {
		return nil, nil, refused("query: give a command that reads, such as GET key")
	}
	found, err := c.findKeys([]command{cmd})
	if err != nil {
		return nil, nil, err
	}
	if len(found.changed) > 0 {
		return nil, nil, refused("query: %s changes keys; give a command that reads", strings.ToUpper(cmd.args[0]))
	}
	args := make([]any, len(cmd.args))
	for i, arg := range cmd.args {
		args[i] = arg
	}
	value, err = c.client.Do(c.ctx, args...).Result()
	if err != nil && !errors.Is(err, client.Nil) {
		return nil, nil, c.explain(err)
	}
	return plain(value), found.read, nil
}
