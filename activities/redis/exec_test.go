package redis_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
)

func TestPlanShowsWhatEachKeyLosesAndGains(t *testing.T) {
	d := newDatabase(t, shop...)
	before := d.dump()
	s := d.exec("SET visits 11", "HSET user age 32", "DEL session:1", "EXPIREAT session:2 4102444800", "SADD made one",
		"GET visits", "ZADD rank 1 ann")
	c := s.plan()
	require.Equal(t, "main: 1 key added, 1 removed, 3 changed", c.Summary)
	require.False(t, c.Unchanged)
	expires := d.client.ExpireTime(t.Context(), "session:1").Val().Seconds()
	require.Contains(t, c.Diff, `"made": not there -> set, 1 member`+"\n"+`+ "one"`+"\n")
	require.Contains(t, c.Diff, `"user": hash, 2 fields -> hash, 2 fields`+"\n"+`- "age" "31"`+"\n"+`+ "age" "32"`+"\n")
	require.Contains(t, c.Diff, `"visits": string, 2 bytes -> string, 2 bytes`+"\n"+`- "10"`+"\n"+`+ "11"`+"\n")
	require.Contains(t, c.Diff, `-> string, 1 byte, expires 2100-01-01T00:00:00Z`)
	require.Contains(t, c.Diff, `"session:1": string, 1 byte, expires `)
	require.NotContains(t, c.Diff, "rank")
	require.Greater(t, expires, 0.0)
	require.Equal(t, before, d.dump())
	require.Empty(t, d.server.Client(15).Keys(t.Context(), "*").Val(), "copies of a rehearsal are left")
	s.apply()
	require.True(t, d.exec("SET visits 11", "SADD made one").plan().Unchanged)
}

func TestSensitiveContentIsNotShown(t *testing.T) {
	d := newDatabase(t, "SET card:1 4242", "SET other 1")
	d.limit(redis.Database{Sensitive: []string{"card:*"}})
	s := d.exec("SET card:1 4343", "SET other 2")
	c := s.plan()
	require.Contains(t, c.Diff, "\"card:1\": string, 4 bytes -> string, 4 bytes\n- ***\n+ ***\n")
	require.Contains(t, c.Diff, `+ "2"`)
	s.apply()
	d.run("SET card:1 4444")
	drift := s.undo(activities.Drifted).Drift
	require.Contains(t, drift.Diff, "***")
	require.NotContains(t, drift.Diff, "4444")
	s = d.exec("SET other 3")
	s.with.Checks = []activities.Check{
		{Query: &activities.QueryCheck{SQL: "MGET other card:1", Expect: json.RawMessage(`["3", "x"]`)}}}
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.EqualError(t, err, `CheckFailed: check 1 (query, live): MGET other card:1: it is ***, want ["3", "x"]`)
	s.with.Checks[0].Query.Expect = json.RawMessage(`["3", "4444"]`)
	s.apply()
}

func TestRepliesAreOutputs(t *testing.T) {
	d := newDatabase(t, shop...)
	r := d.exec("INCRBY visits 5", "SET a b", "LRANGE queue 0 -1", "GET nothing", "ZADD rank INCR 0.5 ann").apply()
	require.Equal(t, []any{int64(15), "OK", []any{"a", "b"}, nil, "1.5"}, r.Outputs["replies"])
	require.Equal(t, 3, r.Outputs["changed"])
	require.Equal(t, "main: 1 key added, 2 changed", r.Summary)
}

// A command that fails in the middle takes back what those before it did.
func TestAFailingCommandChangesNothing(t *testing.T) {
	d := newDatabase(t, shop...)
	s := d.exec("SET visits 99", "DEL user", "SADD made one", "LPUSH visits x", "SET after 1")
	s.fails(activities.ActionDenied, "commands[3]: LPUSH: WRONGTYPE")
	s.sees(activities.AsBefore)
	s.decide(activities.Decision{}, activities.Nothing)
}

func TestRefusals(t *testing.T) {
	d := newDatabase(t, shop...)
	for line, want := range map[string]string{
		"FLUSHALL": "name the keys", "flushdb ASYNC": "name the keys", "KEYS *": "name the keys", "SCAN 0": "name the keys",
		"EVAL return 0": "what a script touches cannot be known beforehand", "FCALL f 0": "what a script touches",
		"SCRIPT FLUSH": "what a script touches",
		"MULTI":        "one atomic unit already", "SELECT 3": "the logical database that the worker's config names",
		"MOVE visits 3":          "another logical database",
		"COPY visits other DB 3": "leave DB out", "SWAPDB 0 1": "exchanges whole databases",
		"MIGRATE h 1 visits 0 5": "another server",
		"CONFIG SET maxmemory 1": "names no key", "SHUTDOWN": "let an operator do it",
		"DEBUG SLEEP 1": "let an operator do it", "PING": "names no key",
		"BLPOP queue 0": "waits for others", "XREAD BLOCK 0 STREAMS log $": "waits for others",
		"XREADGROUP GROUP readers block BLOCK 0 STREAMS log >": "waits for others", "PUBLISH c m": "cannot be called back",
		"SUBSCRIBE c":       "cannot wait for messages",
		"SORT queue BY w_*": "reads keys by a pattern", "SORT queue BY nosort GET # GET o_*": "reads keys by a pattern",
		"NOSUCH visits": "the server knows no command NOSUCH", "SET visits": "finds no keys in it",
		"DEL unwind:journal": "hold the undo records", "WAIT 1 1": "let an operator do it",
	} {
		d.exec(line).fails(activities.Refused, want)
	}
	d.exec().fails(activities.Refused, "give 1 to 1000 commands")
	d.step(map[string]any{"database": "main", "commands": []any{[]any{}}}).fails(activities.Refused,
		"commands[0]: give a name and its arguments")
	d.step(map[string]any{"database": "main", "commands": []any{[]any{"SET", "a", nil}}}).fails(activities.Refused,
		"argument 2 must be a text, a number or a boolean")
	d.step(map[string]any{"database": "main", "commands": "FLUSHALL"}).fails(activities.Refused, "commands")
	d.step(map[string]any{"database": "other", "commands": []any{[]any{"SET", "a", "b"}}}).fails(activities.Refused,
		`"other" is not one of this worker's redis.databases: main`)
	d.limit(redis.Database{Allow: []string{"cache:*"}, Deny: []string{"*secret*"}})
	d.exec("SET other 1").fails(activities.Refused,
		`the worker's config does not allow steps to change it (redis.databases.main.allow: cache:*)`)
	d.exec("COPY cache:secret cache:a").fails(activities.Refused, `the worker's config denies it`)
	d.exec("COPY other cache:a").apply()
}

// What may wait for others, or read keys by a pattern, and does not.
func TestCommandsThatNeitherWaitNorSearch(t *testing.T) {
	d := newDatabase(t, append(shop, "XADD block 1-1 a b", "XGROUP CREATE block readers 0")...)
	before := d.dump()
	s := d.exec("XREADGROUP GROUP readers two COUNT 5 STREAMS block >", "XREADGROUP GROUP readers two STREAMS log 0",
		"XREAD COUNT 1 STREAMS log 0",
		"SORT queue BY nosort GET # STORE sorted", "SORT_RO queue ALPHA DESC GET #")
	s.plan()
	require.Equal(t, before, d.dump())
	require.Equal(t, []any{"b", "a"}, s.apply().Outputs["replies"].([]any)[4])
	require.Equal(t, int64(1), d.client.XPending(t.Context(), "block", "readers").Val().Count)
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
	require.Equal(t, int64(0), d.client.XPending(t.Context(), "block", "readers").Val().Count)
}

func TestLargeKeysAreRefused(t *testing.T) {
	d := newDatabase(t, "SET small 1")
	d.exec("SETRANGE small 17000000 x").fails(activities.Refused, "is too large")
	d.run("SETRANGE large 17000000 x")
	d.exec("DEL large").fails(activities.Refused, "all keys of a step together may have 16 MB and 100000 elements")
	d.exec("SET small 2", "BITOP NOT small large").fails(activities.Refused, `key "large" is too large`)
}

func TestDriftIsToldPerKey(t *testing.T) {
	d := newDatabase(t, shop...)
	before := d.dump()
	s := d.exec("SET visits 11", "HSET user age 32", "DEL session:1", "RPUSH queue c", "SADD made one",
		"SET session:2 c KEEPTTL")
	s.apply()
	left := d.dump()
	d.run("SET visits 12", "SET session:1 x", "PERSIST session:2", "DEL made", "SET unrelated 1")
	changed := d.dump()
	s.sees(activities.Elsewise)
	u := s.undo(activities.Drifted)
	require.Equal(t, "changed since the step: 4 keys", u.Observed)
	require.Contains(t, u.Drift.Diff, "\"visits\": the step left a string; now: string, 2 bytes\n  \"12\"\n")
	require.Contains(t, u.Drift.Diff, "\"session:1\": the step left no such key; now: string, 1 byte\n  \"x\"\n")
	require.Contains(t, u.Drift.Diff, "\"session:2\": the step left a string; now: string, 1 byte\n")
	require.Contains(t, u.Drift.Diff, "\"made\": the step left a set; now: not there\n  someone deleted it\n")
	require.NotContains(t, u.Drift.Diff, "user")
	require.Equal(t, changed, d.dump())

	d.run("SET visits 13")
	s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Drifted)
	u = s.undo(activities.Drifted)
	u = s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Restored)
	require.Equal(t, "6 keys as before, over what someone else had changed", u.Observed)
	require.Equal(t, before, strings.ReplaceAll(d.dump(), "\"unrelated\" string -1 \"31\"\n", ""))
	require.NotEqual(t, left, before)
}

// A key that somebody made too large to compare is never overwritten.
func TestDriftThatIsTooLargeIsNotForced(t *testing.T) {
	d := newDatabase(t, "SET a 1")
	s := d.exec("DEL a")
	s.apply()
	d.run("SETRANGE a 17000000 x")
	u := s.undo(activities.Drifted)
	require.Contains(t, u.Drift.Diff, "it is too large: ")
	s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Drifted)
	d.run("DEL a")
	s.undo(activities.Restored)
	require.Equal(t, "1", d.client.Get(t.Context(), "a").Val())
}

func TestWhatHasExpiredIsNobodysChange(t *testing.T) {
	d := newDatabase(t, "SET lasting 1")
	var s *step
	for life := 200; ; life *= 2 { // the key must still be there when the step runs
		d.run(fmt.Sprintf("SET brief old PX %d", life))
		ends := d.client.PExpireTime(t.Context(), "brief").Val()
		s = d.exec("SET brief new", "SET passing 1 PX 1", "SET lasting 2 PX 1")
		s.apply()
		inTime := d.now() < ends
		for d.now() <= ends {
			require.NoError(t, t.Context().Err())
		}
		if inTime {
			break
		}
		s.undo(activities.Restored)
	}
	s.sees(activities.AsLeft)
	u := s.undo(activities.Restored)
	require.Equal(t, "2 keys as before; 1 key not brought back, because the time to expire has passed since", u.Observed)
	require.Equal(t, "\"lasting\" string -1 \"31\"\n", d.dump())
}

// The undos of two steps on the same keys build on each other.
func TestStepsOnTheSameKeysAreUndoneInReverse(t *testing.T) {
	d := newDatabase(t, shop...)
	before := d.dump()
	first, second := d.exec(everything...), d.exec("DEL user queue tags rank log visits", "SADD tags other",
		"EXPIRE session:2 50000")
	first.apply()
	between := d.dump()
	second.apply()
	first.undo(activities.Drifted)
	second.undo(activities.Restored)
	require.Equal(t, between, d.dump())
	first.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

var everything = []string{
	"SETBIT bits 7 1", "HINCRBY user age 1", "LSET queue 0 z", "SREM tags x", "ZREMRANGEBYRANK rank 0 0", "XDEL log 1-1",
	"XACK log readers 1-2", "XADD log 9-1 e f",
	"XGROUP CREATE log more 0", "PFADD unique a b", "GEOADD places 13.4 52.5 Berlin", "RENAME visits hits", "INCR visits",
}

// What one step may hold up everybody else for is bounded: large collections, which the server
// keeps in hash tables, come back too.
func TestLargeCollectionsComeBack(t *testing.T) {
	var members, fields strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&members, " member-%d", i)
		fmt.Fprintf(&fields, " field-%d value-%d", i, i)
	}
	server := redistest.Own(t, redistest.Durable...)
	d := on(t, server, "SADD set"+members.String(), "HSET hash"+fields.String())
	before := d.dump()
	s := d.exec("SREM set member-7", "HSET hash field-9 x", "SADD set more")
	s.apply()
	server.Kill() // the order in a hash table is another one in each process
	require.NoError(t, server.Restart())
	s.sees(activities.AsLeft)
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}
