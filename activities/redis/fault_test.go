package redis_test

import (
	"context"
	"crypto/sha1"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue/keyvaluetest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
)

func TestAServerThatIsKilledKeepsRecordAndChange(t *testing.T) {
	server := redistest.Own(t, redistest.Durable...)
	d := on(t, server, shop...)
	before := d.dump()
	s := d.exec(everything...)
	first := s.apply()
	server.Kill()
	_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{})
	require.ErrorContains(t, err, "database main: the server cannot be reached, or does not answer; it is tried again")
	require.False(t, activities.TypeOf(err).Final())
	require.NoError(t, server.Restart())
	require.Equal(t, first.Outputs, s.apply().Outputs)
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// What a server has lost is reported as damage, and never as nothing to undo.
func TestAServerThatKeepsNothingHasLostItsJournal(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	s, never := d.exec("DEL user"), d.exec("DEL queue")
	require.Contains(t, s.plan().Facts,
		"the server keeps nothing through a restart (neither AOF nor RDB): its undo records are then lost with its data")
	require.Contains(t, s.apply().Notes,
		"the server keeps nothing through a restart (neither AOF nor RDB): its undo records are then lost with its data")
	server.Kill()
	require.NoError(t, server.Restart())
	for _, each := range []*step{s, never} {
		_, err := each.action.Undo(t.Context(), each.entry, activities.Decision{})
		require.ErrorContains(t, err, "its journal (unwind:journal), in which the undo records are, is gone")
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
	}
	_, err := d.world.Journal(t.Context()) // of the next task
	require.NoError(t, err)
	_, err = s.action.Undo(t.Context(), s.entry, activities.Decision{})
	require.ErrorContains(t, err, "or its journal was lost with its data")
	require.Equal(t, activities.WrongPlace, activities.TypeOf(err))
}

func TestARecordThatIsGoneIsDamage(t *testing.T) {
	for _, pattern := range []string{"*", "*:images", "*:check", "*:outcome"} {
		d := newDatabase(t, shop...)
		s := d.exec("DEL user")
		s.apply()
		left := d.dump()
		if pattern == "*:outcome" {
			s.undo(activities.Restored)
			left = d.dump()
		}
		fields := d.client.HKeys(t.Context(), "unwind:journal").Val()
		for _, field := range fields {
			if matched, _ := filepath.Match(pattern, field); matched && field != "id" {
				require.NoError(t, d.client.HDel(t.Context(), "unwind:journal", field).Err())
			}
		}
		_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%s: %v", pattern, err)
		require.Equal(t, left, d.dump())
	}
}

// Two steps have acted. Each field of the first one is deleted, cut, replaced by that of the second
// one, or put back to what it was before, and so are the two that hold what the keys held before:
// whatever the history knows, the undo is right or says that the record is damaged, and nothing is
// touched.
func TestHarmToEachDocument(t *testing.T) {
	fields := [][]string{{"state"}, {"entry"}, {"private"}, {"acted"}, {"images"}, {"check"}, {"images", "check"},
		{"acted", "images", "check"}, {"replies"}, {"counts"}, {"outcome"}, {"state", "outcome"}}
	for _, names := range fields {
		for _, harm := range []string{"deleted", "cut", "another's", "of another that is undone",
			"of another that is released", "of before the undo", "deleted after the undo", "after the undo, another's"} {
			for _, decision := range []activities.Decision{{}, {Done: true}} {
				t.Run(fmt.Sprintf("%s %s, done %t", strings.Join(names, " "), harm, decision.Done), func(t *testing.T) {
					testHarm(t, names, harm, decision)
				})
			}
		}
	}
}

func testHarm(t *testing.T, names []string, harm string, decision activities.Decision) {
	d := newDatabase(t, shop...)
	before := d.dump()
	s, other := d.exec("DEL user", "INCR visits"), d.exec("RPUSH queue c")
	s.apply()
	left := d.dump()
	mine := d.fields(s.entry.Token, names)
	changed := map[string]string{}
	want := activities.Restored
	switch harm {
	case "cut":
		for name, value := range mine {
			changed[name] = value[:len(value)/2]
		}
	case "another's":
		other.apply()
		left = d.dump()
		changed = d.fields(other.entry.Token, names)
	case "of another that is undone", "of another that is released":
		other.apply()
		if harm == "of another that is undone" {
			other.undo(activities.Restored)
		} else {
			require.NoError(t, other.action.Release(t.Context(), other.entry))
		}
		left = d.dump()
		changed = d.fields(other.entry.Token, names)
	case "of before the undo":
		changed = mine
		s.undo(activities.Restored)
		mine, left = d.fields(s.entry.Token, names), before
	case "deleted after the undo":
		s.undo(activities.Restored)
		mine, left = d.fields(s.entry.Token, names), before
	case "after the undo, another's":
		s.undo(activities.Restored)
		other.decide(activities.Decision{}, activities.Nothing)
		mine, left, changed = d.fields(s.entry.Token, names), before, d.fields(other.entry.Token, names)
	}
	d.setFields(s.entry.Token, names, changed)
	u, err := s.action.Undo(t.Context(), s.entry, decision)
	if err != nil {
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		require.Equal(t, left, d.dump())
		if _, err := s.action.Apply(t.Context(), s.entry, s.with, ""); err == nil ||
			activities.TypeOf(err) != activities.Fenced {
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		}
		require.Equal(t, left, d.dump())
		if d.fields(s.entry.Token, []string{"state"})["state"] != "undone" {
			require.Error(t, s.action.Release(t.Context(), s.entry))
		}
		d.setFields(s.entry.Token, names, mine)
		u, err = s.action.Undo(t.Context(), s.entry, decision)
	}
	require.NoError(t, err)
	require.Equal(t, want, u.Outcome, "%+v", u)
	if harm == "another's" {
		other.undo(activities.Restored)
	}
	if harm != "of another that is released" {
		require.Equal(t, before, d.dump())
	}
}

// A step that is confirmed says what its own commands returned, or that its record is damaged.
func TestHarmToWhatTheCommandsReturned(t *testing.T) {
	for _, name := range []string{"replies", "counts", "confirm", "state", "images"} {
		for _, harm := range []string{"deleted", "cut", "another's"} {
			d := newDatabase(t, shop...)
			s, other := d.exec("INCR visits"), d.exec("RPUSH queue c d e", "DEL user")
			result := s.apply()
			other.apply()
			left, changed := d.dump(), map[string]string{}
			switch mine := d.fields(s.entry.Token, []string{name})[name]; harm {
			case "cut":
				changed[name] = mine[:len(mine)/2]
			case "another's":
				changed = d.fields(other.entry.Token, []string{name})
			}
			d.setFields(s.entry.Token, []string{name}, changed)
			again, err := s.action.Apply(t.Context(), s.entry, s.with, "")
			if err == nil {
				require.Equal(t, result, again, "%s %s", name, harm)
			} else {
				require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%s %s: %v", name, harm, err)
			}
			require.Equal(t, left, d.dump())
		}
	}
}

// What says who needs a record is harmed: the record is not released.
func TestHarmToHolders(t *testing.T) {
	for _, name := range []string{"holders", "held"} {
		for _, harm := range []string{"deleted", "cut", "another's"} {
			d := newDatabase(t, shop...)
			before := d.dump()
			s, other := d.exec("INCR visits"), d.exec("RPUSH queue c")
			s.apply()
			other.apply()
			holder := activities.Owner{Workflow: "rollback", Run: "run"}
			held, err := d.world.Records.Hold(t.Context(), s.entry.Token, holder)
			require.NoError(t, err)
			require.True(t, held)
			_, err = d.world.Records.Hold(t.Context(), other.entry.Token, holder)
			require.NoError(t, err)
			require.NoError(t, d.world.Records.EndHold(t.Context(), other.entry.Token, holder))
			changed := map[string]string{}
			switch mine := d.fields(s.entry.Token, []string{name})[name]; harm {
			case "cut":
				changed[name] = mine[:len(mine)/2]
			case "another's":
				changed = d.fields(other.entry.Token, []string{name})
			}
			d.setFields(s.entry.Token, []string{name}, changed)
			require.Error(t, s.action.Release(t.Context(), s.entry), "%s %s", name, harm)
			s.undo(activities.Restored)
			other.undo(activities.Restored)
			require.Equal(t, before, d.dump())
		}
	}
}

// A seal that names no token could be that of any record.
func TestARecordWithoutSeals(t *testing.T) {
	d := newDatabase(t, shop...)
	s := d.exec("DEL user", "INCR visits")
	s.apply()
	left := d.dump()
	images := d.fields(s.entry.Token, []string{"images"})["images"]
	d.setFields(s.entry.Token, []string{"acted", "confirm"}, nil)
	d.setFields(s.entry.Token, []string{"check"}, map[string]string{"check": fmt.Sprintf("%x", sha1.Sum([]byte(images)))})
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
	_, err = s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
	require.Equal(t, left, d.dump())
}

// fields are those of a token that are there.
func (d *database) fields(token string, names []string) map[string]string {
	d.Helper()
	found := map[string]string{}
	for _, name := range names {
		if value, err := d.client.HGet(d.Context(), "unwind:journal", token+":"+name).Result(); err == nil {
			found[name] = value
		}
	}
	return found
}

// setFields sets fields of a token, and deletes those that have no value.
func (d *database) setFields(token string, names []string, values map[string]string) {
	d.Helper()
	for _, name := range names {
		if value, there := values[name]; there {
			require.NoError(d, d.client.HSet(d.Context(), "unwind:journal", token+":"+name, value).Err())
		} else {
			require.NoError(d, d.client.HDel(d.Context(), "unwind:journal", token+":"+name).Err())
		}
	}
}

// A stopped server costs a call its deadline, and no more.
func TestAStalledServer(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	before := d.dump()
	s := d.exec("DEL user", "INCR visits")
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	limited, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer end()
	cancelled, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
	for _, ctx := range []context.Context{limited, cancelled} {
		_, err := s.action.Apply(ctx, s.entry, s.with, "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, server.Signal(syscall.SIGCONT))
	s.decide(activities.Decision{}, activities.Nothing)
	require.Equal(t, before, d.dump())
}

// What a stopped server does with a request once it goes on is found out from the record, and what
// comes after the undo does nothing.
func TestARequestThatIsLate(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	before := d.dump()
	warm := d.exec("INCR warm") // the server has the scripts
	warm.apply()
	warm.undo(activities.Restored)
	s := d.exec("DEL user", "INCR visits")
	direct, late := d.url, make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	p := keyvaluetest.Proxy{Text: s.entry.Token, Answered: true, Ended: late, Found: func() {
		assert.NoError(t, server.Signal(syscall.SIGSTOP))
		cancel(context.DeadlineExceeded)
	}}
	d.url = through(t, p, server)
	_, err := s.action.Apply(ctx, s.entry, s.with, "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	d.url = direct
	require.NoError(t, server.Signal(syscall.SIGCONT))
	u, err := s.action.Undo(t.Context(), s.entry, activities.Decision{})
	require.NoError(t, err)
	require.Contains(t, []activities.Outcome{activities.Nothing, activities.Restored}, u.Outcome)
	<-late
	require.Equal(t, before, d.dump())
	s.sees(activities.AsBefore)
}

// through is the address of a proxy before a server.
func through(t *testing.T, p keyvaluetest.Proxy, server *redistest.Server) (url string) {
	t.Helper()
	return "unix://" + p.Listen(t, "unix", filepath.Join(server.Dir, "proxy"), server.Socket())
}

func TestACutConnection(t *testing.T) {
	for _, answered := range []bool{false, true} {
		server := redistest.Own(t)
		d := on(t, server, shop...)
		before := d.dump()
		warm := d.exec("INCR warm")
		warm.apply()
		warm.undo(activities.Restored)
		s := d.exec("DEL user", "INCR visits")
		direct := d.url
		d.url = through(t, keyvaluetest.Proxy{Text: s.entry.Token, Answered: answered}, server)
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "it is tried again")
		want := activities.AsBefore
		if answered {
			want = activities.AsLeft
		}
		d.url = direct
		s.sees(want)
		if answered {
			require.Equal(t, []any{int64(1), int64(11)}, s.apply().Outputs["replies"], "a second attempt ran the commands again")
		}
		s.decide(activities.Decision{Done: answered},
			map[bool]activities.Outcome{false: activities.Nothing, true: activities.Restored}[answered])
		require.Equal(t, before, d.dump())
		_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
		require.Equal(t, activities.Fenced, activities.TypeOf(err))
	}
}

func TestAFullMemory(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	before := d.dump()
	s, late := d.exec("DEL user", "SET visits 1"), d.exec("SET more 1")
	s.apply()
	d.run("CONFIG SET maxmemory 1")
	_, err := late.action.Apply(t.Context(), late.entry, late.with, "")
	require.ErrorContains(t, err, "the server's memory is full (maxmemory), and nothing was changed; it is tried again")
	late.decide(activities.Decision{}, activities.Nothing)
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
	d.run("CONFIG SET maxmemory 100000000", "CONFIG SET maxmemory-policy allkeys-lru")
	require.Contains(t, d.exec("SET a 1").plan().Facts[2], "evicts any key")
}

func TestServersThatCannotBeUsed(t *testing.T) {
	primary := redistest.Own(t, "--requirepass", "right-password")
	replica := redistest.Own(t, "--port", "0", "--replicaof", "127.0.0.1 1")
	cluster := redistest.Own(t, "--cluster-enabled", "yes")
	for url, want := range map[string]string{
		"unix://" + primary.Socket():                 "the server refuses the worker's user or password (NOAUTH)",
		"unix://:wrong-password@" + primary.Socket(): "the server refuses the worker's user or password (WRONGPASS)",
		replica.URL(0): "the server is a read-only replica; name the primary",
		cluster.URL(0): "the server belongs to a cluster, which is not supported",
		"unix://:right-password@" + primary.Socket() + "?db=99": "the server has no logical database 99",
		"postgres://somewhere": "the address is not one of Redis",
	} {
		w, err := redis.New(
			redis.Config{Databases: map[string]redis.Database{"main": {URL: func() (string, error) { return url, nil }}}})
		require.NoError(t, err)
		preflighter, _ := w.Actions[0].(activities.Preflighter)
		err = preflighter.Preflight(t.Context(),
			activities.Outlook{Step: activities.Step{With: []byte(`{"database": "main", "commands": [["SET", "a", "b"]]}`)}})
		require.ErrorContains(t, err, want)
		require.Equal(t, activities.Refused, activities.TypeOf(err), err)
		require.NotContains(t, err.Error(), "password@")
		require.NotContains(t, err.Error(), primary.Socket())
	}
	w, err := redis.New(
		redis.Config{
			Databases: map[string]redis.Database{
				"main": {URL: func() (string, error) { return "redis://:hidden@127.0.0.1:1", nil }}}})
	require.NoError(t, err)
	_, err = w.Journal(t.Context())
	require.EqualError(t, err, "database main: the server cannot be reached, or does not answer; it is tried again")
}

// TestTheUserOfTheDocumentation works as a user with the rights that docs/redis.md lists, and no
// others.
func TestTheUserOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/redis.md")
	require.NoError(t, err)
	line := strings.ReplaceAll(regexp.MustCompile("(?m)^ACL SETUSER .*$").FindString(string(page)), ">PASSWORD", ">secret")
	require.NotEmpty(t, line)
	server := redistest.Own(t)
	d := on(t, server, "SET session:1 a EX 1000", "SADD session:2 b", "SET other 1", line)
	d.url = "unix://unwind:secret@" + server.Socket()
	before := d.dump()
	s := d.exec("DEL session:1", "SADD session:2 c", "HSET session:3 a b")
	require.Equal(t, "main: 1 key added, 1 removed, 1 changed", s.plan().Summary)
	require.Equal(t, []activities.Count{{Of: "keys", Added: 1, Removed: 1, Changed: 1}}, s.plan().Counts)
	s.apply()
	s.sees(activities.AsLeft)
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
	require.NoError(t, s.action.Release(t.Context(), s.entry))
	_, problems, err := d.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	d.exec("SET other 2").fails(activities.Refused, "the worker's user lacks a permission")
	d.exec("DEL session:1", "GET other").fails(activities.Refused, "the worker's user lacks a permission")
}

// A server is put back to the dump of before a step. Its journal is among the data, and goes back
// with them: a step that the history knows as done is damage, one of which it knows nothing has
// done nothing to these data, and one of before is undone.
func TestDataOfBeforeTheStep(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	before := d.dump()
	early := d.exec("SET early 1")
	early.apply()
	then := d.dump()
	require.NoError(t, d.client.Save(t.Context()).Err())
	saved, err := os.ReadFile(filepath.Join(server.Dir, "dump.rdb"))
	require.NoError(t, err)
	known, unknown := d.exec("DEL user"), d.exec("INCR visits")
	known.apply()
	unknown.apply()
	server.Kill()
	require.NoError(t, os.WriteFile(filepath.Join(server.Dir, "dump.rdb"), saved, 0o600))
	require.NoError(t, server.Restart())
	require.Equal(t, then, d.dump())

	for range 2 {
		_, err := known.action.Undo(t.Context(), known.entry, activities.Decision{Done: true})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		require.ErrorContains(t, err, "were the data put back to an earlier state?")
	}
	unknown.decide(activities.Decision{}, activities.Nothing)
	require.Equal(t, then, d.dump())
	early.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}
