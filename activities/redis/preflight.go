package redis

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// Preflight connects, and asks the server for the keys of each command: that finds a server that
// cannot be used, and commands that are refused.
func (a *execAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := readParams(o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks), keyvalue.CheckPlaces(kind, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	var commands []command
	if !o.AwaitsAny() {
		commands, err = p.list()
		problems = append(problems, err)
	}
	c, err := a.connect(ctx, p.Database)
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	defer c.end()
	if commands != nil {
		_, err = c.findKeys(commands)
	}
	return errors.Join(append(problems, err)...)
}
