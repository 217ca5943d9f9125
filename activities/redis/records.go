package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// records implements activities.Records over the journals of all databases.
type records struct{ *world }

// each calls do for every database. One that does not answer is a problem, and the others are still
// asked.
func (w records) each(ctx context.Context, do func(*connection) error) []error {
	return keyvalue.ForEach(w.Databases, func(name string) error {
		c, err := w.connect(ctx, name)
		if err != nil {
			return err
		}
		defer c.end()
		return do(c)
	})
}

// listed are the fields of a token that a listing reads: all but the contents of keys.
var listed = []string{"state", "entry", "owner", "since", "committed", "until", "begun", "ended", "released", "holders",
	"bytes", "forgotten"}

// listedAtOnce is how many records a listing asks for in one round trip.
const listedAtOnce = 200

// Records lists the tokens of all journals.
func (w records) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	var damaged []error
	problems = w.each(ctx, func(c *connection) error {
		fields, err := c.client.HKeys(ctx, journalKey).Result()
		if err != nil {
			return c.explain(err)
		}
		for tokens := range slices.Chunk(remembered(fields), listedAtOnce) {
			values, err := c.readAll(tokens)
			if err != nil {
				return err
			}
			for i, token := range tokens {
				if values[i]["state"] == "" || values[i]["forgotten"] != "" { // since the listing began
					continue
				}
				r, err := readRecord(values[i])
				if err == nil && r.Entry.Token != token {
					err = fmt.Errorf("its entry is that of token %s", r.Entry.Token)
				}
				if err != nil {
					damaged = append(damaged, fmt.Errorf("database %s: token %s: %w", c.name, token, err))
					continue
				}
				all = append(all, r)
			}
		}
		return nil
	})
	return all, append(problems, damaged...), nil
}

// remembered are the tokens of a journal with these fields, except for those that are forgotten:
// there may be many, and they cost nothing.
func remembered(fields []string) (tokens []string) {
	isForgotten := map[string]bool{}
	for _, each := range fields {
		if token, forgotten := strings.CutSuffix(each, ":forgotten"); forgotten {
			isForgotten[token] = true
		}
	}
	for _, each := range fields {
		if token, isToken := strings.CutSuffix(each, ":state"); isToken && !isForgotten[token] {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// readAll reads what a listing needs of tokens in one round trip.
func (c *connection) readAll(tokens []string) ([]map[string]string, error) {
	replies := make([]*client.SliceCmd, len(tokens))
	_, err := c.client.Pipelined(c.ctx, func(p client.Pipeliner) error {
		for i, token := range tokens {
			replies[i] = p.HMGet(c.ctx, journalKey, fieldsOf(token, listed)...)
		}
		return nil
	})
	if err != nil {
		return nil, c.explain(err)
	}
	all := make([]map[string]string, len(tokens))
	for i, reply := range replies {
		all[i] = named(listed, reply.Val())
	}
	return all, nil
}

// fieldsOf are the names that fields of a token have in the journal.
func fieldsOf(token string, names []string) []string {
	fields := make([]string, len(names))
	for i, name := range names {
		fields[i] = token + ":" + name
	}
	return fields
}

// named are the values of fields by their names.
func named(names []string, values []any) map[string]string {
	found := map[string]string{}
	for i, name := range names {
		found[name] = text(values[i])
	}
	return found
}

// readFields reads fields of a token; those that are not there are empty.
func (c *connection) readFields(token string, names ...string) (map[string]string, error) {
	values, err := c.client.HMGet(c.ctx, journalKey, fieldsOf(token, names)...).Result()
	if err != nil {
		return nil, c.explain(err)
	}
	return named(names, values), nil
}

func readRecord(v map[string]string) (activities.Record, error) {
	r := activities.Record{Since: parseTime(v["since"])}
	r.Bytes, _ = strconv.ParseInt(v["bytes"], 10, 64) // none counts as 0
	if err := errors.Join(json.Unmarshal([]byte(v["entry"]), &r.Entry), json.Unmarshal([]byte(v["owner"]), &r.Owner),
		json.Unmarshal([]byte(cmp.Or(v["holders"], "[]")), &r.Holders)); err != nil {
		return r, err
	}
	keyvalue.Times{
		Committed: parseTime(v["committed"]), Until: parseTime(v["until"]),
		Begun: parseTime(v["begun"]), Ended: parseTime(v["ended"]), Released: parseTime(v["released"]),
	}.SetState(&r)
	return r, nil
}

// amend sets fields of a token in whichever database it is, if some have the values that are
// expected.
func (w records) amend(ctx context.Context, token string, expected, fields []string) error {
	return errors.Join(w.each(ctx, func(c *connection) error {
		_, err := c.amend(token, expected, fields)
		return err
	})...)
}

func (c *connection) amend(token string, expected, fields []string) (done bool, err error) {
	args := []any{token, len(expected) / 2}
	for _, each := range slices.Concat(expected, fields) {
		args = append(args, each)
	}
	n, err := amendScript.Run(c.ctx, c.client, []string{journalKey}, args...).Int()
	return n == 1, c.explain(err)
}

// Commit marks an open token.
func (w records) Commit(ctx context.Context, token string, until time.Time) error {
	return w.amend(ctx, token, []string{"state", applied, "committed", ""},
		[]string{"committed", timestamp(time.Now()), "until", timestamp(until)})
}

// Hold keeps a record from being released.
func (w records) Hold(ctx context.Context, token string, holder activities.Owner) (held bool, err error) {
	held = true
	err = w.amendHolders(ctx, token, func(state string, holders []activities.Owner) []activities.Owner {
		held = state != released
		if state != applied || slices.Contains(holders, holder) {
			return holders
		}
		return append(slices.Clip(holders), holder)
	})
	return held && err == nil, err
}

// EndHold ends a hold.
func (w records) EndHold(ctx context.Context, token string, holder activities.Owner) error {
	return w.amendHolders(ctx, token, func(_ string, holders []activities.Owner) []activities.Owner {
		return slices.DeleteFunc(slices.Clone(holders), func(o activities.Owner) bool { return o == holder })
	})
}

// amendHolders stores the holders of a record that change returns.
func (w records) amendHolders(ctx context.Context, token string,
	change func(state string, holders []activities.Owner) []activities.Owner) error {
	return errors.Join(w.each(ctx, func(c *connection) error {
		for done := false; !done; { // another call may change it meanwhile
			v, err := c.readFields(token, "state", "holders")
			if err != nil || v["state"] == "" {
				return err
			}
			var holders []activities.Owner
			if err := json.Unmarshal([]byte(cmp.Or(v["holders"], "[]")), &holders); err != nil {
				return fmt.Errorf("database %s: the holders of token %s: %w", c.name, token, err)
			}
			changed := change(v["state"], holders)
			if len(changed) == len(holders) {
				return nil
			}
			raw, err := json.Marshal(changed)
			if err != nil {
				return err
			}
			held := "" // tells of holders that have been deleted
			if len(changed) > 0 {
				held = "1"
			}
			if done, err = c.amend(token, []string{"state", v["state"], "holders", v["holders"]},
				[]string{"holders", string(raw), "held", held}); err != nil {
				return err
			}
		}
		return nil
	})...)
}

// Claim has nothing to do: what a record says of its owner is apart from what an undo needs.
func (w records) Claim(context.Context, activities.Entry) error { return nil }

// Abandon gives up an undo that has begun.
func (w records) Abandon(ctx context.Context, token string) error {
	raw, err := json.Marshal(keptOutcome{token, activities.Abandoned})
	if err != nil {
		return err
	}
	return w.amend(ctx, token, []string{"state", undoing},
		[]string{"state", undone, "outcome", string(raw), "ended", timestamp(time.Now())})
}

// Forget leaves the fence of a released token, and nothing else.
func (w records) Forget(ctx context.Context, token string) error {
	return errors.Join(w.each(ctx, func(c *connection) error {
		v, err := c.readFields(token, "state", "released")
		if err != nil || v["state"] == "" {
			return err
		}
		if v["released"] == "" {
			return fmt.Errorf("token %s is not released: it is still needed", token)
		}
		fields := []string{"forgotten", "1"}
		for _, name := range listed {
			if name != "state" && name != "released" && name != "forgotten" {
				fields = append(fields, name, "")
			}
		}
		_, err = c.amend(token, []string{"released", v["released"]}, append(fields, "outcome", "", "private", "", "held", ""))
		return err
	})...)
}
