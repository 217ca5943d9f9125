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

	client "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// journals implements recordkeeping.Journals.
type journals struct{ *world }

// each calls do for every database. One that does not answer is a problem, and the others are still
// asked.
func (w journals) each(ctx context.Context, do func(*connection) error) []error {
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
var listed = append([]string{"entry", "owner", "since", "bytes"}, keptFields...)

// listedAtOnce is how many records a listing asks for in one round trip.
const listedAtOnce = 200

// Records lists the tokens of all journals.
func (w journals) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
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
	kept, err := readKept(v)
	r := activities.Record{Since: recordkeeping.ParseTime(v["since"]), Holders: kept.Holders}
	r.Bytes, _ = strconv.ParseInt(v["bytes"], 10, 64) // none counts as 0
	if err := errors.Join(err, json.Unmarshal([]byte(v["entry"]), &r.Entry),
		json.Unmarshal([]byte(v["owner"]), &r.Owner)); err != nil {
		return r, err
	}
	kept.SetState(&r)
	return r, nil
}

// keptFields are those of recordkeeping.Record, but for the outcome.
var keptFields = []string{"state", "committed", "until", "begun", "ended", "released", "holders", "forgotten"}

func readKept(v map[string]string) (r recordkeeping.Record, err error) {
	r = recordkeeping.Record{State: v["state"], Forgotten: v["forgotten"] != ""}
	r.Committed, r.Until = recordkeeping.ParseTime(v["committed"]), recordkeeping.ParseTime(v["until"])
	r.Begun, r.Ended = recordkeeping.ParseTime(v["begun"]), recordkeeping.ParseTime(v["ended"])
	r.Released = recordkeeping.ParseTime(v["released"])
	return r, json.Unmarshal([]byte(cmp.Or(v["holders"], "[]")), &r.Holders)
}

// writeKept returns fields with their values: empty ones remove what is there.
func writeKept(token string, r recordkeeping.Record) (fields []string, err error) {
	forgotten, holders, held := "", "", "" // held tells of holders that have been deleted
	if r.Forgotten {
		forgotten = "1"
		for _, name := range []string{"entry", "owner", "since", "bytes", "outcome", "private"} {
			fields = append(fields, name, "")
		}
	}
	if len(r.Holders) > 0 {
		raw, err := json.Marshal(r.Holders)
		if err != nil {
			return nil, err
		}
		holders, held = string(raw), "1"
	}
	if r.Outcome != nil {
		raw, err := json.Marshal(recordkeeping.KeptOutcome{Token: token, Undone: *r.Outcome})
		if err != nil {
			return nil, err
		}
		fields = append(fields, "outcome", string(raw))
	}
	return append(fields, "state", r.State, "committed", recordkeeping.FormatTime(r.Committed),
		"until", recordkeeping.FormatTime(r.Until), "begun", recordkeeping.FormatTime(r.Begun),
		"ended", recordkeeping.FormatTime(r.Ended), "released", recordkeeping.FormatTime(r.Released),
		"holders", holders, "held", held, "forgotten", forgotten), nil
}

// Change stores what change makes of the record of a token, in whichever database that is.
func (w journals) Change(ctx context.Context, token string, change func(*recordkeeping.Record) (bool, error)) error {
	return errors.Join(w.each(ctx, func(c *connection) error {
		for done := false; !done; { // another call may change it meanwhile
			v, err := c.readFields(token, keptFields...)
			if err != nil || v["state"] == "" {
				return err
			}
			r, err := readKept(v)
			if err != nil {
				return fmt.Errorf("database %s: the holders of token %s: %w", c.name, token, err)
			}
			if changed, err := change(&r); err != nil || !changed {
				return err
			}
			fields, err := writeKept(token, r)
			if err != nil {
				return err
			}
			if done, err = c.amend(token, v, fields); err != nil {
				return err
			}
		}
		return nil
	})...)
}

// amend sets fields of a token, each with its value behind it, if others have the values that are
// expected.
func (c *connection) amend(token string, expected map[string]string, fields []string) (done bool, err error) {
	args := []any{token, len(expected)}
	for name, value := range expected {
		args = append(args, name, value)
	}
	for _, each := range fields {
		args = append(args, each)
	}
	n, err := amendScript.Run(c.ctx, c.client, []string{journalKey}, args...).Int()
	return n == 1, c.explain(err)
}
