package etcd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/etcd"
)

func TestPlanShowsWhatEachKeyLosesAndGains(t *testing.T) {
	d := newDatabase(t, app)
	lease := d.grant(1000)
	d.put("held", "1", client.WithLease(lease))
	before := d.dump()
	s := d.txn(`{"put": [{"key": "name", "value": "new"}, {"key": "made", "value": "x"}, {"key": "c", "value": "third"}], "delete": [{"prefix": "tmp/"}, {"key": "held"}]}`)
	c := s.plan()
	require.Equal(t, "main: 1 key added, 3 removed, 1 changed", c.Summary)
	require.Equal(t,
		"\"held\"\n- \"1\" on lease "+fmt.Sprintf("%x", int64(lease))+
			"\n\"made\"\n+ \"x\"\n\"name\"\n- \"old name\"\n+ \"new\"\n\"tmp/1\"\n- \"x\"\n\"tmp/2\"\n- \"\"\n", c.Diff)
	require.Equal(t,
		[]string{"it changes 6 keys: c, held, made, name, tmp/1, tmp/2", "on a lease, and back only while it lives: held"},
		c.Facts)
	require.Equal(t, []activities.Count{{Of: "keys", Added: 1, Removed: 3, Changed: 1}}, c.Counts)
	require.Equal(t, before, d.dump())
	require.False(t, c.Unchanged)
	r := s.apply()
	require.Equal(t, 5, r.Outputs["changed"])
	require.Equal(t, "main: 1 key added, 3 removed, 1 changed", r.Summary)
	require.Equal(t, r, s.apply(), "a second attempt has another result")
	require.True(t, d.txn(`{"put": [{"key": "made", "value": "x"}], "delete": [{"key": "held"}]}`).plan().Unchanged)
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

func TestSensitiveValuesAreNotShown(t *testing.T) {
	d := newDatabase(t, map[string]string{"db/password": "4242", "other": "1"})
	d.limit(etcd.Database{Sensitive: []string{"*password*"}})
	s := d.txn(`{"put": [{"key": "db/password", "value": "4343"}, {"key": "other", "value": "2"}]}`)
	c := s.plan()
	require.Contains(t, c.Diff, "\"db/password\"\n- ***\n+ ***\n")
	require.Contains(t, c.Diff, `+ "2"`)
	s.apply()
	d.put("db/password", "4444")
	drift := s.undo(activities.Drifted).Drift
	require.Contains(t, drift.Diff, "now: ***")
	require.NotContains(t, drift.Diff, "4444")
	s = d.txn(`{"put": [{"key": "other", "value": "3"}]}`)
	s.with.Checks = []activities.Check{{Query: &activities.QueryCheck{SQL: "db/password", Expect: json.RawMessage(`"x"`)}}}
	_, err := s.action().Apply(t.Context(), s.entry, s.with, "")
	require.EqualError(t, err, `CheckFailed: check 1 (query, live): db/password: it is ***, want "x"`)
	s.with.Checks[0].Query.Expect = json.RawMessage(`"4444"`)
	s.apply()
	d.txn(`{"compare": [{"key": "db/password", "value": "x"}], "put": [{"key": "a", "value": "b"}]}`).fails(
		activities.ActionDenied, `compare[0]: key "db/password" has another value: ***`)
}

func TestConditionsOfTheAuthor(t *testing.T) {
	d := newDatabase(t, app)
	r, err := d.client.Get(t.Context(), d.namespace+"a")
	require.NoError(t, err)
	mod := r.Kvs[0].ModRevision
	for condition, problem := range map[string]string{
		`{"key": "a", "value": "first"}`:                       "",
		`{"key": "a", "exists": true}`:                         "",
		`{"key": "none", "exists": false}`:                     "",
		`{"key": "none", "mod_revision": 0}`:                   "",
		fmt.Sprintf(`{"key": "a", "mod_revision": %d}`, mod):   "",
		`{"key": "a", "value": "other"}`:                       `compare[0]: key "a" has another value: "first"; nothing was changed`,
		`{"key": "none", "value": "other"}`:                    `compare[0]: key "none" is not there`,
		`{"key": "a", "exists": false}`:                        `compare[0]: key "a" is there`,
		`{"key": "none", "exists": true}`:                      `compare[0]: key "none" is not there`,
		fmt.Sprintf(`{"key": "a", "mod_revision": %d}`, mod+1): "and not",
		`{"key": "none", "mod_revision": 7}`:                   `compare[0]: key "none" is not there`,
	} {
		before := d.dump()
		s := d.txn(`{"compare": [` + condition + `], "put": [{"key": "name", "value": "new"}]}`)
		if problem != "" {
			s.fails(activities.ActionDenied, problem)
			s.decide(activities.Decision{}, activities.Nothing)
			continue
		}
		s.apply()
		s.undo(activities.Restored)
		require.Equal(t, before, d.dump(), condition)
	}
}

func TestRefusals(t *testing.T) {
	d := newDatabase(t, app)
	for with, want := range map[string]string{
		`{}`:                                   "give at least one key that is put or deleted",
		`{"put": [{"key": "", "value": "x"}]}`: "put[0].key: the key is empty",
		`{"put": [{"key": "unwind/journal", "value": "x"}]}`:                                           "hold the undo records",
		`{"delete": [{"prefix": "un"}]}`:                                                               "delete[0]: the range has keys that begin with unwind/",
		`{"delete": [{"from": "a", "to": "z"}]}`:                                                       "delete[0]: the range has keys that begin with unwind/",
		`{"delete": [{"prefix": "unwind/record/"}]}`:                                                   "delete[0]: the range has keys that begin with unwind/",
		`{"delete": [{}]}`:                                                                             "delete[0]: give key, or prefix, or from and to",
		`{"delete": [{"key": "a", "prefix": "b"}]}`:                                                    "delete[0]: give key, or prefix, or from and to",
		`{"delete": [{"from": "a"}]}`:                                                                  "delete[0]: give key, or prefix, or from and to",
		`{"delete": [{"from": "b", "to": "a"}]}`:                                                       `delete[0]: from "b" does not come before to "a"`,
		`{"put": [{"key": "a", "value": "x"}], "delete": [{"key": "a"}]}`:                              `delete[0].key: key "a" is in put[0].key already`,
		`{"put": [{"key": "tmp/9", "value": "x"}], "delete": [{"prefix": "tmp/"}]}`:                    `delete[0]: key "tmp/9" is put, and in the range that is deleted`,
		`{"put": [{"key": "a", "value": "x", "lease": "zz"}]}`:                                         `put[0].lease: "zz" is no lease`,
		`{"put": [{"key": "a", "value": "x", "lease": "1f", "keep_lease": true}]}`:                     "put[0]: lease and keep_lease: give one of them",
		`{"compare": [{"key": "a"}], "put": [{"key": "a", "value": "x"}]}`:                             "compare[0]: give one of exists, value and mod_revision",
		`{"compare": [{"key": "a", "exists": true, "value": ""}], "put": [{"key": "a", "value": ""}]}`: "compare[0]: give one of exists, value and mod_revision",
		`{"compare": [{"key": "unwind/x", "exists": true}], "put": [{"key": "a", "value": ""}]}`:       "hold the undo records",
		`{"put": [{"key": "a", "value": "x", "ttl": 5}]}`:                                              "ttl",
		`{"database": "other", "put": [{"key": "a", "value": "x"}]}`:                                   `"other" is not one of this worker's etcd.databases: main`,
	} {
		d.txn(with).fails(activities.Refused, want)
	}
	d.txn(`{"put": [{"key": "a", "value": "x", "lease": "1f"}]}`).refusedByApply(activities.ActionDenied,
		"a lease of the step does not exist")
	d.limit(etcd.Database{Allow: []string{"app/*"}, Deny: []string{"*secret*"}})
	d.txn(`{"put": [{"key": "other", "value": "x"}]}`).fails(activities.Refused,
		`the worker's config does not allow steps to change it (etcd.databases.main.allow: app/*)`)
	d.txn(`{"delete": [{"prefix": "tmp/"}]}`).fails(activities.Refused, `key "tmp/1": the worker's config does not allow`)
	d.txn(`{"put": [{"key": "app/secret", "value": "x"}]}`).fails(activities.Refused,
		"the worker's config denies it (etcd.databases.main.deny)")
	d.txn(`{"compare": [{"key": "secret", "exists": false}], "put": [{"key": "app/a", "value": "x"}]}`).fails(
		activities.Refused, "the worker's config denies it")
}

// refusedByApply requires that apply fails, and changes nothing.
func (s *step) refusedByApply(kind activities.ErrorType, want string) {
	s.Helper()
	before := s.dump()
	_, err := s.action().Apply(s.Context(), s.entry, s.with, "")
	require.ErrorContains(s, err, want)
	require.Equal(s, kind, activities.TypeOf(err), err)
	require.Equal(s, before, s.dump())
	s.decide(activities.Decision{}, activities.Nothing)
}

// What one transaction of etcd may have is used wholly, and what is more is refused.
func TestLimitsOfATransaction(t *testing.T) {
	d := newDatabase(t, nil)
	for i := range 125 {
		d.put(fmt.Sprintf("many/%03d", i), strings.Repeat("x", 1000))
	}
	before := d.dump()
	s := d.txn(`{"delete": [{"from": "many/000", "to": "many/124"}]}`)
	s.apply()
	require.Equal(t, "\"many/124\" \""+strings.Repeat("x", 1000)+"\" lease 0\n", d.dump())
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
	d.txn(`{"delete": [{"prefix": "many/"}]}`).fails(activities.Refused,
		"the step needs 129 operations and conditions, and one transaction of etcd may have 128; make several steps of it")
	var puts []map[string]string
	for i := range 126 {
		puts = append(puts, map[string]string{"key": fmt.Sprint("put/", i), "value": ""})
	}
	raw, err := json.Marshal(map[string]any{"put": puts})
	require.NoError(t, err)
	d.txn(string(raw)).fails(activities.Refused, "make several steps of it")

	for _, key := range []string{"big/1", "big/2"} {
		d.put(key, strings.Repeat("b", 520_000))
	}
	d.txn(`{"delete": [{"key": "big/1"}]}`).apply()
	d.put("big/1", strings.Repeat("b", 530_000))
	d.txn(`{"delete": [{"prefix": "big/"}]}`).fails(activities.Refused,
		"the keys of the step hold 1050030 bytes, before and after it")
	d.put("big/1", strings.Repeat("b", 528_000)) // as much as one may have, and back
	large := d.dump()
	s = d.txn(`{"delete": [{"prefix": "big/"}]}`)
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, large, d.dump())
}

func TestDriftIsToldPerKey(t *testing.T) {
	d := newDatabase(t, app)
	before := d.dump()
	s := d.txn(`{"put": [{"key": "name", "value": "new"}, {"key": "made", "value": "1"}, {"key": "a", "value": "2"}, {"key": "same", "value": "3"}], "delete": [{"key": "old"}, {"key": "c"}]}`)
	s.apply()
	d.put("name", "newer")
	d.remove("made")
	d.put("old", "again")
	d.put("same", "3") // as the undo of a later step would
	d.put("unrelated", "1")
	changed := d.dump()
	s.sees(activities.Elsewise)
	u := s.undo(activities.Drifted)
	require.Equal(t, "changed since the step: 3 keys", u.Observed)
	require.Regexp(t, `^changed since the step: 3 keys
"made": the step left a value; now: not there, someone deleted it
"name": the step left a value; now: "newer", changed at revision \d+
"old": the step deleted it; now: "again", changed at revision \d+
$`, u.Drift.Diff)
	require.Equal(t, changed, d.dump())

	d.put("name", "newest")
	s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Drifted)
	u = s.undo(activities.Drifted)
	u = s.decide(activities.Decision{Done: true, Force: u.Drift.Digest}, activities.Restored)
	require.Equal(t, "6 keys as before, over what someone else had changed", u.Observed)
	require.Equal(t, before, strings.ReplaceAll(d.dump(), "\"unrelated\" \"1\" lease 0\n", ""))
	require.Equal(t, u, s.undo(activities.Restored))
	s.sees(activities.AsBefore)
}

func TestAKeyGoesBackOnItsLease(t *testing.T) {
	d := newDatabase(t, nil)
	lease, other := d.grant(1000), d.grant(2000)
	d.put("off", "1", client.WithLease(lease))
	d.put("kept", "1", client.WithLease(lease))
	d.put("gone", "1", client.WithLease(lease))
	d.put("moved", "1", client.WithLease(lease))
	before := d.dump()
	s := d.txn(fmt.Sprintf(
		`{"put": [{"key": "off", "value": "2"}, {"key": "kept", "value": "2", "keep_lease": true}, {"key": "moved", "value": "1", "lease": "%x"}], "delete": [{"key": "gone"}]}`, int64(other)))
	s.apply()
	require.Equal(t,
		fmt.Sprintf("\"kept\" \"2\" lease %x\n\"moved\" \"1\" lease %x\n\"off\" \"2\" lease 0\n", int64(lease), int64(other)),
		d.dump())
	u := s.undo(activities.Restored)
	require.Regexp(t, fmt.Sprintf(`^4 keys as before; back on lease %x with (1000|99\d) s left$`, int64(lease)),
		u.Observed)
	require.Equal(t, before, d.dump())
}

// What has ended with its lease would be gone without the step too.
func TestALeaseThatHasEnded(t *testing.T) {
	d := newDatabase(t, map[string]string{"lasting": "1"})
	lease := d.grant(1000)
	d.put("off", "1", client.WithLease(lease))
	d.put("kept", "1", client.WithLease(lease))
	d.put("deleted", "1", client.WithLease(lease))
	s := d.txn(fmt.Sprintf(
		`{"put": [{"key": "off", "value": "2"}, {"key": "kept", "value": "2", "keep_lease": true}, {"key": "lasting", "value": "2", "lease": "%x"}], "delete": [{"key": "deleted"}]}`, int64(lease)))
	s.apply()
	_, err := d.client.Revoke(t.Context(), lease)
	require.NoError(t, err)
	require.Equal(t, "\"off\" \"2\" lease 0\n", d.dump())
	s.sees(activities.AsLeft)
	u := s.undo(activities.Restored)
	require.Equal(t, "1 key as before; 3 keys not brought back, because the lease has ended since", u.Observed)
	require.Equal(t, "\"lasting\" \"1\" lease 0\n", d.dump())
}

// The undos of two steps on the same keys build on each other.
func TestStepsOnTheSameKeysAreUndoneInReverse(t *testing.T) {
	d := newDatabase(t, app)
	before := d.dump()
	first := d.txn(
		`{"put": [{"key": "name", "value": "1"}, {"key": "made", "value": "1"}], "delete": [{"prefix": "tmp/"}]}`)
	second := d.txn(
		`{"put": [{"key": "tmp/1", "value": "2"}, {"key": "name", "value": "2"}], "delete": [{"key": "made"}]}`)
	first.apply()
	between := d.dump()
	second.apply()
	first.undo(activities.Drifted)
	second.undo(activities.Restored)
	require.Equal(t, between, d.dump())
	// The undo of the second step has written what the first one had left, but at another revision.
	u := first.undo(activities.Restored)
	require.Equal(t, "4 keys as before", u.Observed)
	require.Equal(t, before, d.dump())
}

// TestADatabaseThatWasAwayIsNothingToUndo: it did not answer when the task was compiled, so that no
// journal of it is named, and does when the step comes.
func TestADatabaseThatWasAwayIsNothingToUndo(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, map[string]string{"a": "1"})
	s := d.txn(`{"put": [{"key": "a", "value": "2"}]}`)
	s.entry.Place.Journal = strings.ReplaceAll(s.entry.Place.Journal, "main=", "other=")
	s.fails(activities.WrongPlace, "names no journal of database main")
	s.decide(activities.Decision{}, activities.Nothing)
}
