package keyvalue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// ShownItems is how many names or items a person is shown in one list.
const ShownItems = 20

// MatchesAny reports whether one of the patterns matches a key; * stands for any text.
func MatchesAny(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*")
		ok, _ := regexp.MatchString("(?s)^"+quoted+"$", key)
		return ok
	})
}

// Limits are the keys that steps may touch in a database.
type Limits struct {
	// Config is where the worker's config says it, such as redis.databases.cache.
	Config string
	// Allow are the keys that steps may change; none allow all. Deny are those that they may neither
	// read nor change.
	Allow, Deny []string
}

// Check refuses keys that the worker's config does not allow.
func (l Limits) Check(changed, read []string) error {
	for _, key := range slices.Concat(changed, read) {
		if MatchesAny(l.Deny, key) {
			return activities.Errorf(activities.Refused, "key %q: the worker's config denies it (%s.deny)", key, l.Config)
		}
	}
	for _, key := range changed {
		if len(l.Allow) > 0 && !MatchesAny(l.Allow, key) {
			return activities.Errorf(activities.Refused,
				"key %q: the worker's config does not allow steps to change it (%s.allow: %s)",
				key, l.Config, strings.Join(l.Allow, ", "))
		}
	}
	return nil
}

// DescribeChanges says how many keys come, go and change.
func DescribeChanges(n [3]int) string {
	return activities.Count{Added: int64(n[0]), Removed: int64(n[1]), Changed: int64(n[2])}.Describe("key")
}

// CountsOf are the numbers of keys that come, that go and that change, as a plan has them; none
// where no key does.
func CountsOf(n [3]int) []activities.Count {
	if n == [3]int{} {
		return nil
	}
	return []activities.Count{{Of: "keys", Added: int64(n[0]), Removed: int64(n[1]), Changed: int64(n[2])}}
}

// JoinSome joins names, but not more than a reader takes in.
func JoinSome(names []string) string {
	if len(names) > ShownItems {
		return strings.Join(names[:ShownItems], ", ") + fmt.Sprintf(" and %d more", len(names)-ShownItems)
	}
	return strings.Join(names, ", ")
}
