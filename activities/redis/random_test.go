package redis_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// kinds are commands on a key of one type. %k is a key of that type, %v a value, %n a small number,
// %f a fraction.
var kinds = map[string][]string{
	"s": {"SET %k %v", "SET %k %n", "SET %k %v PX 1%n000000", "SETRANGE %k %n %v", "APPEND %k %v", "GETDEL %k",
		"GETEX %k PERSIST", "SETBIT %k %n 1", "INCRBYFLOAT %k %f", "MSET %k %v %k %v", "BITOP XOR %k %k %k", "SETNX %k %v"},
	"l": {"RPUSH %k %v %v", "LPUSH %k %n", "LPOP %k %n", "LSET %k 0 %v", "LTRIM %k 0 %n", "LMOVE %k %k LEFT RIGHT",
		"LREM %k 0 %v", "SORT %k ALPHA STORE %k"},
	"t": {"SADD %k %v %v %n", "SREM %k %v", "SPOP %k", "SMOVE %k %k %v", "SUNIONSTORE %k %k %k", "SDIFFSTORE %k %k %k",
		"SADD %k 1 2 3"},
	"h": {"HSET %k %v %v", "HDEL %k %v", "HINCRBY %k count %n", "HSETNX %k %v %n", "HINCRBYFLOAT %k part %f"},
	"z": {"ZADD %k %n %v %f %v", "ZREM %k %v", "ZINCRBY %k %f %v", "ZPOPMIN %k", "ZUNIONSTORE %k 2 %k %k",
		"ZREMRANGEBYSCORE %k 0 %n", "ZADD %k inf %v"},
	"x": {"XADD %k * %v %v", "XTRIM %k MAXLEN %n", "XGROUP CREATE %k %v 0 MKSTREAM", "XGROUP CREATECONSUMER %k %v %v",
		"XSETID %k 9999999999999-%n"},
	"p": {"PFADD %k %v %n", "PFMERGE %k %k %k", "PFCOUNT %k %k"},
}

// anyKind are commands on keys of any type.
var anyKind = []string{"DEL %k", "UNLINK %k %k", "EXPIRE %k 1%n000", "PEXPIREAT %k 4102444800%n00", "PERSIST %k",
	"COPY %k %k REPLACE", "RENAME %k %k", "EXISTS %k", "TYPE %k"}

// drawCommand draws a command on one of four keys of a type. Some of what it draws the server
// refuses.
func drawCommand(r *rand.Rand) string {
	names := []string{"s", "l", "t", "h", "z", "x", "p"}
	kind := names[r.IntN(len(names))]
	all := append(append([]string{}, kinds[kind]...), anyKind...)
	text, out := all[r.IntN(len(all))], ""
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out += text[i : i+1]
			continue
		}
		i++
		switch text[i] {
		case 'k':
			out += fmt.Sprintf("%s:%d", kind, r.IntN(4))
		case 'v':
			out += fmt.Sprintf("v%d", r.IntN(6))
		case 'n':
			out += fmt.Sprint(r.IntN(9) + 1)
		case 'f':
			out += fmt.Sprintf("%.3f", r.Float64()*10)
		}
	}
	return out
}

// Random lists of commands are undone one after the other, and the database holds what it held
// before each.
func TestRandomCommandsAreUndone(t *testing.T) {
	random := testrun.Rand(t)
	lists := 300
	if testrun.Deep() {
		lists = 20_000
	}
	d := newDatabase(t)
	var steps []*step
	var dumps []string
	var failed, changed int
	undo := func() {
		last := len(steps) - 1
		steps[last].undo(activities.Restored)
		require.Equal(t, dumps[last], d.dump(), "%s", steps[last].with.With)
		steps, dumps = steps[:last], dumps[:last]
	}
	for range lists {
		var lines []string
		for range 1 + random.IntN(6) {
			lines = append(lines, drawCommand(random))
		}
		s, before := d.exec(lines...), d.dump()
		change, planned := s.action.Plan(t.Context(), s.entry, s.with)
		require.Equal(t, before, d.dump(), "%v", lines)
		_, err := s.action.Apply(t.Context(), s.entry, s.with, change.Digest)
		if err != nil {
			failed++
			require.Equal(t, activities.ActionDenied, activities.TypeOf(err), err)
			require.Error(t, planned, "%v", lines)
			require.Equal(t, before, d.dump(), "%v: %v", lines, err)
			s.decide(activities.Decision{}, activities.Nothing)
			continue
		}
		if d.dump() != before {
			changed++
		}
		steps, dumps = append(steps, s), append(dumps, before)
		for len(steps) > 0 && random.IntN(3) == 0 {
			undo()
		}
	}
	for len(steps) > 0 {
		undo()
	}
	require.Empty(t, d.dump())
	t.Logf("%d lists: %d changed something, %d failed", lists, changed, failed)
	require.Greater(t, changed, lists/3)
	require.Greater(t, failed, lists/30)
}
