package redis_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/keyvalue/keyvaluetest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// keep takes a checkpoint, and returns its name.
func (d *database) keep() (*step, string) {
	d.Helper()
	s := d.stepOf("redis.checkpoint", map[string]any{"database": "main"})
	name, _ := s.apply().Outputs["checkpoint"].(string)
	return s, name
}

// changedBy is how many keys a restore says that it has changed.
func changedBy(r activities.Result) int {
	n, err := strconv.Atoi(fmt.Sprint(r.Outputs["changed"]))
	if err != nil {
		panic(err)
	}
	return n
}

func (d *database) restore(checkpoint string) *step {
	d.Helper()
	return d.stepOf("redis.restore", map[string]any{"database": "main", "checkpoint": checkpoint})
}

// compare returns how many keys differ, and the lines about them.
func (d *database) compare(checkpoint, with string) (changed int, lines []string) {
	d.Helper()
	given := map[string]any{"database": "main", "checkpoint": checkpoint}
	if with != "" {
		given["with"] = with
	}
	out := d.stepOf("redis.compare", given).apply().Outputs
	diff, _ := out["diff"].(string)
	changed, _ = out["changed"].(int)
	return changed, strings.Split(diff, "\n")
}

// kept is the file of a checkpoint.
func (d *database) kept(name string) string { return filepath.Join(d.state, "checkpoints", name) }

// ours is what the database has of ours.
func (d *database) ours() map[string]string {
	d.Helper()
	keys, err := d.client.Keys(d.Context(), "unwind:*").Result()
	require.NoError(d, err)
	require.Equal(d, []string{"unwind:journal"}, keys)
	return d.client.HGetAll(d.Context(), "unwind:journal").Val()
}

// TestADatabaseGoesBackAndForward three times, and back through all of it.
func TestADatabaseGoesBackAndForward(t *testing.T) {
	d := newDatabase(t, shop...)
	earlier := d.exec("SET early 1")
	earlier.apply()
	_, first := d.keep()
	before := d.dump()
	d.run("DEL user log", "SET tags text", "RPUSH made 1", "PERSIST session:1", "EXPIRE visits 5000", "XADD user 1-1 a b")
	broken := d.dump()
	_, second := d.keep()
	var done []*step
	for range 3 {
		for _, to := range []string{first, second} {
			dump := map[string]string{first: before, second: broken}[to]
			left := d.dump()
			s := d.restore(to)
			change := s.plan()
			require.Equal(t, left == dump, change.Unchanged)
			result, err := s.action.Apply(t.Context(), s.entry, s.with, change.Digest)
			require.NoError(t, err)
			require.Equal(t, dump, d.dump())
			want := map[bool]int{true: 0, false: 6}[change.Unchanged]
			require.Equal(t, want, changedBy(result), result.Summary)
			s.sees(activities.AsLeft)
			done = append(done, s)
			require.Equal(t, left, undoneAndDoneAgain(s, to))
		}
	}
	require.Len(t, done, 6)
	for _, s := range slices.Backward(done) {
		s.undo(activities.Restored)
		s.sees(activities.AsBefore)
	}
	require.Equal(t, broken, d.dump())
	d.run("DEL made")
	d.restore(first).apply()
	earlier.sees(activities.AsLeft)
	earlier.undo(activities.Restored)
	require.NotContains(t, d.dump(), "early")
	left, err := filepath.Glob(filepath.Join(d.state, "journal", "tokens", done[0].entry.Token, "*"))
	require.NoError(t, err)
	for _, path := range left {
		require.NotRegexp(t, "/(before|after)", path)
	}
	d.ours()
}

// undoneAndDoneAgain returns what an undo of a restore leaves, and restores anew, as another step.
func undoneAndDoneAgain(s *step, to string) string {
	s.Helper()
	other := s.restore(to)
	other.apply()
	other.undo(activities.Restored)
	s.undo(activities.Restored)
	left := s.dump()
	again := s.restore(to)
	again.apply()
	*s = *again
	return left
}

// TestRandomKeysComeBack keeps a database of random keys again and again, and goes back to any of its
// checkpoints, and back from there.
func TestRandomKeysComeBack(t *testing.T) {
	random := testrun.Rand(t)
	rounds := 40
	if testrun.Deep() {
		rounds = 1000
	}
	d := newDatabase(t)
	var names, dumps []string
	for range rounds {
		for range 1 + random.IntN(20) {
			var args []any
			for each := range strings.FieldsSeq(drawCommand(random)) {
				args = append(args, each)
			}
			_ = d.client.Do(t.Context(), args...).Err() // some are refused
		}
		if len(names) == 0 || random.IntN(3) == 0 {
			_, name := d.keep()
			names, dumps = append(names, name), append(dumps, d.dump())
		}
		to := random.IntN(len(names))
		before := d.dump()
		changed, _ := d.compare(names[to], "")
		require.Equal(t, before == dumps[to], changed == 0, "%d differ: %s and %s", changed, before, dumps[to])
		s := d.restore(names[to])
		require.Equal(t, changed, changedBy(s.apply()))
		require.Equal(t, dumps[to], d.dump())
		require.Zero(t, first(d.compare(names[to], "")))
		if random.IntN(2) == 0 {
			s.undo(activities.Restored)
			require.Equal(t, before, d.dump())
		}
	}
	require.Greater(t, len(names), 2)
}

func first(n int, _ []string) int { return n }

// TestLargeCollectionsAreNoDifference where only the order in the memory of a server is another one.
func TestLargeCollectionsAreNoDifference(t *testing.T) {
	var members, fields strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&members, " member-%d", i)
		fmt.Fprintf(&fields, " field-%d value-%d", i, i)
	}
	server := redistest.Own(t, redistest.Durable...)
	d := on(t, server, "SADD set"+members.String(), "HSET hash"+fields.String(), "SET other 1")
	_, kept := d.keep()
	before := d.dump()
	d.run("SET other 2")
	s := d.restore(kept)
	require.Equal(t, 1, changedBy(s.apply()))
	server.Kill()
	require.NoError(t, server.Restart())
	require.Zero(t, first(d.compare(kept, "")))
	s.sees(activities.AsLeft)
	d.run("SREM set member-7")
	s.sees(activities.Elsewise)
	n, lines := d.compare(kept, "")
	require.Equal(t, 1, n)
	require.Equal(t, []string{`~ "set" (set)`}, lines)
	require.Equal(t, 1, changedBy(d.restore(kept).apply()))
	require.Equal(t, before, d.dump())
}

// TestWhatOthersHaveDoneSinceARestoreIsDrift also at keys that the restore has not changed, and a
// force overwrites it.
func TestWhatOthersHaveDoneSinceARestoreIsDrift(t *testing.T) {
	d := newDatabase(t, shop...)
	_, kept := d.keep()
	d.run("DEL user")
	broken := d.dump()
	s := d.restore(kept)
	s.apply()
	d.run("INCR visits", "SET fresh 1", "DEL queue")
	theirs := d.dump()
	s.sees(activities.Elsewise)
	u := s.undo(activities.Drifted)
	require.Equal(t, "changed since the step: 3 keys\n+ \"fresh\" (string)\n- \"queue\" (list)\n~ \"visits\" (string)", u.Drift.Diff)
	require.Equal(t, theirs, d.dump())
	d.run("INCR visits")
	s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Drifted)
	u = s.undo(activities.Drifted)
	u = s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Restored)
	require.Equal(t, "7 keys as before, over what someone else had changed", u.Observed)
	require.Equal(t, broken, d.dump())
	require.Equal(t, u, s.undo(activities.Restored))
}

// TestWhatHasExpiredSinceItWasKeptIsNotBroughtBack by a restore or its undo, and is no drift and no
// difference.
func TestWhatHasExpiredSinceItWasKeptIsNotBroughtBack(t *testing.T) {
	d := newDatabase(t, "SET lasting 1")
	var kept string
	var s *step
	for life := 200; ; life *= 2 { // the keys must be there when they are kept
		d.run(fmt.Sprintf("SET one 1 PX %d", life), "DEL two")
		_, kept = d.keep()
		d.run("DEL one", fmt.Sprintf("SET two 2 PX %d", life))
		ends := d.client.PExpireTime(t.Context(), "two").Val()
		s = d.restore(kept)
		change := s.plan()
		r, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.NoError(t, err)
		inTime := change.Counts != nil && change.Counts[0].Added == 1 && change.Counts[0].Removed == 1 &&
			changedBy(r) == 2 && d.now() < ends
		for d.now() <= ends {
			require.NoError(t, t.Context().Err())
		}
		if inTime {
			break
		}
		s.undo(activities.Restored)
	}
	s.sees(activities.AsLeft)
	require.Zero(t, first(d.compare(kept, "")))
	late := d.restore(kept)
	require.Contains(t, late.plan().Facts, "1 key not brought back, because the time to expire has passed since")
	r := late.apply()
	require.Zero(t, changedBy(r))
	require.Contains(t, r.Notes, "1 key not brought back, because the time to expire has passed since")
	late.undo(activities.Restored)
	u := s.undo(activities.Restored)
	require.Equal(t, "1 key as before; 1 key not brought back, because the time to expire has passed since", u.Observed)
	require.Equal(t, "\"lasting\" string -1 \"31\"\n", d.dump())
}

func TestARestoreThatIsRefusedTouchesNothing(t *testing.T) {
	d, other := newDatabase(t, shop...), newDatabase(t, "SET else 1")
	dropped, gone := d.keep()
	dropped.undo(activities.Restored)
	released, lapsed := d.keep()
	require.NoError(t, released.action.Release(t.Context(), released.entry))
	_, damaged := d.keep()
	raw, err := os.ReadFile(d.kept(damaged))
	require.NoError(t, err)
	raw[len(raw)-1] ^= 1
	require.NoError(t, os.WriteFile(d.kept(damaged), raw, 0o600))
	_, partial := d.keep()
	require.NoError(t, os.Truncate(d.kept(partial), 40))
	_, lost := d.keep()
	require.NoError(t, os.Remove(d.kept(lost)))
	other.state = d.state
	other.limit(redis.Database{})
	_, foreign := other.keep()
	acted := d.exec("DEL user")
	acted.apply()
	for checkpoint, c := range map[string]struct {
		says string
		kind activities.ErrorType
	}{
		"":                        {"is no name of a checkpoint", activities.Refused},
		"cp-../../x":              {"is no name of a checkpoint", activities.Refused},
		"cp-" + acted.entry.Token: {"there is no cp-", activities.Refused},
		foreign:                   {"is of another database", activities.Refused},
		gone:                      {"was undone", activities.Refused},
		lapsed:                    {"its record was released", activities.Refused},
		damaged:                   {"its content is not what the step has written", activities.DamagedRecord},
		partial:                   {"its content is not what the step has written", activities.DamagedRecord},
		lost:                      {"it is gone", activities.DamagedRecord},
	} {
		before := d.dump()
		for _, action := range []string{"redis.restore", "redis.verify", "redis.compare"} {
			s := d.stepOf(action, map[string]any{"database": "main", "checkpoint": checkpoint})
			_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
			require.ErrorContains(t, err, c.says, "%s of %q", action, checkpoint)
			require.Equal(t, c.kind, activities.TypeOf(err), "%s of %q: %v", action, checkpoint, err)
			s.decide(activities.Decision{}, activities.Nothing)
			require.Equal(t, before, d.dump())
		}
	}
}

// TestAFlushedDatabaseComesBack though its journal is gone, and the undo records with it: they are not
// part of a checkpoint.
func TestAFlushedDatabaseComesBack(t *testing.T) {
	d := newDatabase(t, shop...)
	lost := d.exec("INCR visits")
	lost.apply()
	_, kept := d.keep()
	before := d.dump()
	d.run("FLUSHDB", "SET fresh 1")
	place, err := d.world.Journal(t.Context()) // of the next task
	require.NoError(t, err)
	require.NotEqual(t, d.place, place)
	d.place = place
	flushed := d.dump()
	s := d.restore(kept)
	s.apply()
	require.Equal(t, before, d.dump())
	_, err = lost.action.Undo(t.Context(), lost.entry, activities.Decision{Done: true})
	require.Equal(t, activities.WrongPlace, activities.TypeOf(err), err)
	other := d.restore(kept)
	s.undo(activities.Restored)
	require.Equal(t, flushed, d.dump())

	// What has flushed it since the restore has changed it, and is no reason to lose what was there.
	other.apply()
	d.run("FLUSHDB")
	for range 2 {
		u := other.undo(activities.Drifted)
		require.Contains(t, u.Drift.Diff, "changed since the step: 8 keys")
		require.Empty(t, d.dump())
		d.run("FLUSHDB")
	}
	u := other.undo(activities.Drifted)
	other.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Restored)
	require.Equal(t, flushed, d.dump())
	_, err = other.action.Apply(t.Context(), other.entry, other.with, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err), err)

	// Another server at another address is not that database.
	elsewhere := newDatabase(t, "SET theirs 1")
	d.place, err = d.world.Journal(t.Context())
	require.NoError(t, err)
	again := d.restore(kept)
	again.apply()
	d.url = elsewhere.url
	for _, dec := range []activities.Decision{{}, {Done: true}} {
		_, err = again.action.Undo(t.Context(), again.entry, dec)
		require.Equal(t, activities.WrongPlace, activities.TypeOf(err), err)
	}
	require.Contains(t, elsewhere.dump(), "theirs")
}

// TestRecordsStayTrueThroughARestore whichever way it leads: a step from before the checkpoint and one
// from after it are undone, and neither is put back to an earlier state.
func TestRecordsStayTrueThroughARestore(t *testing.T) {
	d := newDatabase(t, shop...)
	start := d.dump()
	early, over := d.exec("INCR visits"), d.exec("SET over 1")
	over.apply()
	early.apply()
	_, kept := d.keep()
	over.undo(activities.Restored)
	late := d.exec("DEL user")
	late.apply()
	records := d.ours()
	back := d.restore(kept)
	back.apply()
	after := d.ours()
	delete(after, back.entry.Token+":whole")
	require.Equal(t, records, after)
	late.undo(activities.Drifted)
	back.undo(activities.Restored)
	late.undo(activities.Restored)
	early.undo(activities.Restored)
	over.undo(activities.Restored)
	require.Equal(t, start, d.dump())
}

// TestACheckpointOutlastsTheUndoOfItsStep where somebody else keeps it.
func TestACheckpointOutlastsTheUndoOfItsStep(t *testing.T) {
	d := newDatabase(t, shop...)
	before := d.dump()
	s, kept := d.keep()
	keeper := activities.Owner{Workflow: "environment-shop"}
	held, err := d.world.Records.Hold(t.Context(), s.entry.Token, keeper)
	require.NoError(t, err)
	require.True(t, held)
	for range 2 {
		require.Contains(t, s.undo(activities.Nothing).Observed, "is that of environment-shop by now, and stays")
	}
	d.run("DEL user")
	d.restore(kept).apply()
	require.Equal(t, before, d.dump())
	require.NoError(t, d.world.Records.EndHold(t.Context(), s.entry.Token, keeper))
	require.NoError(t, s.action.Release(t.Context(), s.entry))
	require.NoFileExists(t, d.kept(kept))
}

// TestARestoreOutlastsTheReleaseOfItsCheckpoint until its own release.
func TestARestoreOutlastsTheReleaseOfItsCheckpoint(t *testing.T) {
	d := newDatabase(t, shop...)
	taken, kept := d.keep()
	d.run("DEL user")
	broken := d.dump()
	s, over := d.restore(kept), d.restore(kept)
	s.apply()
	over.apply()
	require.NoError(t, taken.action.Release(t.Context(), taken.entry))
	require.NoError(t, over.action.Release(t.Context(), over.entry))
	_, err := over.action.Undo(t.Context(), over.entry, activities.Decision{Done: true})
	require.Equal(t, activities.Fenced, activities.TypeOf(err), err)
	_, err = over.action.Apply(t.Context(), over.entry, over.with, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err), err)
	s.undo(activities.Restored)
	require.Equal(t, broken, d.dump())
	records, problems, err := d.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Len(t, records, 3)
}

func TestACheckpointIsVerifiedAndCompared(t *testing.T) {
	d := newDatabase(t, shop...)
	_, kept := d.keep()
	verify := d.stepOf("redis.verify", map[string]any{"database": "main", "checkpoint": kept})
	change := verify.plan()
	require.True(t, change.Unchanged)
	r, err := verify.action.Apply(t.Context(), verify.entry, verify.with, change.Digest)
	require.NoError(t, err)
	require.Equal(t, 8, r.Outputs["keys"])
	_, err = verify.action.Apply(t.Context(), verify.entry, verify.with, "sha256:other")
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err))
	n, lines := d.compare(kept, "")
	require.Zero(t, n)
	require.Equal(t, []string{""}, lines)
	d.run("DEL user", "SET tags text", "RPUSH made 1", "PERSIST session:1", "PEXPIREAT visits 4102444800000", "XDEL log 1-1")
	expires := d.client.PExpireTime(t.Context(), "session:1")
	require.NoError(t, expires.Err())
	n, lines = d.compare(kept, "")
	require.Equal(t, 6, n)
	require.Regexp(t, `^~ "session:1" \(string, expires 20\S+Z -> never\)$`, lines[2])
	require.Equal(t, []string{`~ "log" (stream)`, `+ "made" (list)`, lines[2], `~ "tags" (set -> string)`, `- "user" (hash)`,
		`~ "visits" (string, expires never -> 2100-01-01T00:00:00Z)`}, lines)
	_, second := d.keep()
	m, same := d.compare(kept, second)
	require.Equal(t, n, m)
	require.Equal(t, lines, same)
	change = d.restore(kept).plan()
	require.Equal(t, activities.High, change.Risk)
	require.Contains(t, change.Summary, "1 key added, 1 removed, 4 changed")
	require.Contains(t, change.Diff, `+ "user" (hash)`)
}

// TestManyDifferencesAreCounted and not all told.
func TestManyDifferencesAreCounted(t *testing.T) {
	d := newDatabase(t)
	_, empty := d.keep()
	for i := range 2000 {
		d.run("SET key:" + strconv.Itoa(i) + " x")
	}
	n, lines := d.compare(empty, "")
	require.Equal(t, 2000, n)
	require.Less(t, len(strings.Join(lines, "\n")), activities.MaxOutputs/2)
	require.Contains(t, lines[len(lines)-2], "more lines")
	d.restore(empty).apply()
	require.Empty(t, d.dump())
}

func TestDatabasesThatCannotBeKept(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, "SET a 1", "ACL SETUSER few on >secret ~a ~unwind:* +@all", "ACL SETUSER few -@dangerous +info +restore")
	keep := func() *step { return d.stepOf("redis.checkpoint", map[string]any{"database": "main"}) }
	refused := func(s *step, want string) {
		t.Helper()
		before := d.dump()
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, want)
		require.Equal(t, activities.Refused, activities.TypeOf(err), err)
		require.Equal(t, before, d.dump())
		s.decide(activities.Decision{}, activities.Restored)
	}
	direct := d.url
	d.run("SET b 1")
	d.url = "unix://few:secret@" + server.Socket()
	refused(keep(), "the worker's user lacks a permission, also to keys that no step names")
	d.url = direct
	for _, limits := range []redis.Database{{Allow: []string{"a"}}, {Deny: []string{"c*"}}} {
		d.limit(limits)
		preflighter, _ := keep().action.(activities.Preflighter)
		err := preflighter.Preflight(t.Context(), activities.Outlook{Step: keep().with})
		require.ErrorContains(t, err, "the worker's config limits the keys that steps may use (redis.databases.main.allow, deny)")
		keep().fails(activities.Refused, "name the database once more in the config, without these limits")
	}
	d.limit(redis.Database{})
	_, name := d.keep()
	d.run("CONFIG SET proto-max-bulk-len 100000000", "SETRANGE large 67108864 x")
	d.run("CONFIG SET rdbcompression no")
	refused(keep(), "it has more than 100000 keys or 64 MB")
	_, err := d.restore(name).action.Apply(t.Context(), d.restore(name).entry, d.restore(name).with, "")
	require.ErrorContains(t, err, "nothing was changed")
	d.run("DEL large", "CONFIG SET maxmemory 100000000", "CONFIG SET maxmemory-policy allkeys-lru")
	require.Contains(t, d.stepOf("redis.checkpoint", map[string]any{"database": "main"}).plan().Facts, "the server evicts keys when its memory is full (maxmemory-policy allkeys-lru): what it has "+
		"evicted before is in no checkpoint, and it may evict keys that were put back")
	require.Contains(t, strings.Join(d.restore(name).apply().Notes, "\n"), "it may evict keys that were put back")
}

// TestACheckpointOfANewerServerIsRefused by verify, before anything stops.
func TestACheckpointOfANewerServerIsRefused(t *testing.T) {
	d := newDatabase(t, "SET a 1")
	s, name := d.keep()
	raw, err := os.ReadFile(d.kept(name))
	require.NoError(t, err)
	raw[len(raw)-1-10] = 99 // the version of the format, before a sum of 8 bytes and the expiry
	d.replaceKept(s, raw)
	for _, action := range []string{"redis.verify", "redis.restore", "redis.compare"} {
		before := d.dump()
		s := d.stepOf(action, map[string]any{"database": "main", "checkpoint": name})
		_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "was kept from a newer server, in version 99 of its format, and Redis 7.")
		require.Equal(t, activities.Refused, activities.TypeOf(err), err)
		require.Equal(t, before, d.dump())
	}
}

// replaceKept makes a checkpoint hold something else, as if it had been taken like that.
func (d *database) replaceKept(s *step, raw []byte) {
	d.Helper()
	path := d.kept("cp-" + s.entry.Token)
	old, err := os.ReadFile(path)
	require.NoError(d, err)
	require.NoError(d, os.WriteFile(path, raw, 0o600))
	j, err := journal.Open(filepath.Join(d.state, "journal"))
	require.NoError(d, err)
	token, err := j.Token(s.entry.Token)
	require.NoError(d, err)
	var applied map[string]any
	_, err = token.Read(journal.Applied, &applied)
	require.NoError(d, err)
	require.Equal(d, digestOf(old), applied["digest"])
	applied["digest"] = digestOf(raw)
	require.NoError(d, token.Drop(journal.Applied))
	_, err = token.Create(journal.Applied, &applied)
	require.NoError(d, err)
}

func digestOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// TestWhatARestoreReplacesIsOnTheDiskBefore looks at the database whenever something reaches the disk.
func TestWhatARestoreReplacesIsOnTheDiskBefore(t *testing.T) {
	d := newDatabase(t, shop...)
	_, kept := d.keep()
	d.run("DEL user")
	before := d.dump()
	var synced []string
	defer redis.OnSync(func(path string) {
		name, _, _ := strings.Cut(filepath.Base(path), "-")
		synced = append(synced, name)
		require.Equal(t, before, d.dump())
	})()
	d.restore(kept).apply()
	require.Equal(t, []string{"before"}, synced)
	before = d.dump()
	d.keep()
	require.Equal(t, []string{"before", "staged"}, synced)
}

// TestOthersThatWriteDuringARestore make it look again; what it replaces is what they have left.
func TestOthersThatWriteDuringARestore(t *testing.T) {
	d := newDatabase(t, shop...)
	_, kept := d.keep()
	before := d.dump()
	d.run("DEL user")
	s := d.restore(kept)
	var once sync.Once
	defer redis.OnSync(func(path string) {
		if strings.HasPrefix(filepath.Base(path), "before-") {
			once.Do(func() { d.run("SET fresh 1", "INCR visits") })
		}
	})()
	require.Equal(t, 3, changedBy(s.apply()))
	require.Equal(t, before, d.dump())
	s.undo(activities.Restored)
	require.Equal(t, `"fresh" string -1 "31"`, strings.Split(d.dump(), "\n")[0])

	always := d.restore(kept)
	n := 0
	defer redis.OnSync(func(string) {
		n++
		d.run("INCR visits")
	})()
	_, err := always.action.Apply(t.Context(), always.entry, always.with, "")
	require.ErrorContains(t, err, "somebody changes keys all the time, and nothing was touched; stop what writes to it")
	require.False(t, activities.TypeOf(err).Final())
	require.Contains(t, d.dump(), "fresh")
	require.Equal(t, 20, n)
	always.decide(activities.Decision{}, activities.Nothing)
}

// TestARestoreThatIsLate does nothing once its undo has begun; what a server does with it before is
// found out.
func TestARestoreThatIsLate(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	_, kept := d.keep()
	d.restore(kept).apply() // the server has the scripts
	d.run("DEL user")
	before := d.dump()
	s := d.restore(kept)
	direct, late := d.url, make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	p := keyvaluetest.Proxy{Text: "applied ", Answered: true, Ended: late, Found: func() {
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

// TestARestoreWhoseAnswerIsLost is confirmed by a second attempt, or undone.
func TestARestoreWhoseAnswerIsLost(t *testing.T) {
	for _, answered := range []bool{false, true} {
		server := redistest.Own(t)
		d := on(t, server, shop...)
		_, kept := d.keep()
		d.restore(kept).apply()
		d.run("DEL user")
		before := d.dump()
		s := d.restore(kept)
		direct := d.url
		d.url = through(t, keyvaluetest.Proxy{Text: "applied ", Answered: answered}, server)
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "it is tried again")
		d.url = direct
		s.sees(map[bool]activities.State{false: activities.AsBefore, true: activities.AsLeft}[answered])
		require.Equal(t, 1, changedBy(s.apply()))
		s.undo(activities.Restored)
		require.Equal(t, before, d.dump())
		_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
		require.Equal(t, activities.Fenced, activities.TypeOf(err))
	}
}

// TestAFullMemoryTakesBackARestore and makes none.
func TestAFullMemoryTakesBackARestore(t *testing.T) {
	server := redistest.Own(t)
	d := on(t, server, shop...)
	_, kept := d.keep()
	d.run("DEL user")
	before := d.dump()
	s, late := d.restore(kept), d.restore(kept)
	s.apply()
	left := d.dump()
	d.run("CONFIG SET maxmemory 1")
	_, err := late.action.Apply(t.Context(), late.entry, late.with, "")
	require.ErrorContains(t, err, "the server's memory is full (maxmemory), and nothing was changed; it is tried again")
	late.decide(activities.Decision{}, activities.Nothing)
	require.Equal(t, left, d.dump())
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// TestAServerThatHasLostWhatAStepHasDone says so, and nothing is touched.
func TestAServerThatHasLostWhatAStepHasDone(t *testing.T) {
	d := newDatabase(t, shop...)
	_, kept := d.keep()
	d.run("DEL user")
	s := d.restore(kept)
	s.apply()
	left := d.dump()
	field := s.entry.Token + ":whole"
	state := d.client.HGet(t.Context(), "unwind:journal", field).Val()
	require.NoError(t, d.client.HDel(t.Context(), "unwind:journal", field).Err())
	for _, done := range []bool{false, true} {
		_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: done})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
	}
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.Error(t, err)
	require.Equal(t, left, d.dump())
	require.NoError(t, d.client.HSet(t.Context(), "unwind:journal", field, state).Err())
	s.undo(activities.Restored)
	require.NotEqual(t, left, d.dump())
}

// TestCheckpointsNeedWhatTheDocumentationSays and no more.
func TestCheckpointsNeedWhatTheDocumentationSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/redis.md")
	require.NoError(t, err)
	lines := regexp.MustCompile("(?m)^ACL SETUSER .*$").FindAllString(string(page), -1)
	require.Len(t, lines, 2)
	server := redistest.Own(t)
	d := on(t, server, append(shop, strings.ReplaceAll(lines[0], ">PASSWORD", ">secret"), lines[1])...)
	d.url = "unix://unwind:secret@" + server.Socket()
	_, kept := d.keep()
	d.run("DEL user", "SET fresh 1")
	before := d.dump()
	d.stepOf("redis.verify", map[string]any{"database": "main", "checkpoint": kept}).apply()
	require.Equal(t, 2, first(d.compare(kept, "")))
	s := d.restore(kept)
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// TestADatabaseThatWasAwayIsNothingToUndo: it did not answer when the task was compiled, so that no
// journal of it is named, and does when the step comes.
func TestADatabaseThatWasAwayIsNothingToUndo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, "SET a 1")
	_, kept := d.keep()
	before := d.dump()
	for _, s := range []*step{
		d.exec("SET a 2"), d.restore(kept), d.stepOf("redis.checkpoint", map[string]any{"database": "main"}),
	} {
		s.entry.Place.Journal = strings.ReplaceAll(s.entry.Place.Journal, "main=", "other=")
		s.fails(activities.WrongPlace, "names no journal of database main")
		s.decide(activities.Decision{}, activities.Nothing)
	}
	require.Equal(t, before, d.dump())
}
