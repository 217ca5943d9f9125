package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// change is a key of a step: as it is, and as the step leaves it; nil where it is not there.
type change struct {
	key    string
	before *mvccpb.KeyValue
	after  *value
}

func (k change) isUnchanged() bool {
	if k.before == nil || k.after == nil {
		return k.before == nil && k.after == nil
	}
	return bytes.Equal(k.before.Value, k.after.Value) && client.LeaseID(k.before.Lease) == k.after.Lease
}

// changes are those of the keys of a step, sorted by key. A key that is to be deleted and is not
// there is one too: it must still not be there when the step acts, and when it is undone.
func (f *forward) changes(s snapshot) ([]change, error) {
	all := map[string]change{}
	for i, each := range f.params.Put {
		lease, err := each.leaseID(fmt.Sprintf("put[%d]", i))
		if err != nil {
			return nil, err
		}
		k := change{each.Key, s.keys[each.Key], &value{[]byte(each.Value), lease}}
		if each.KeepLease && k.before != nil {
			k.after.Lease = client.LeaseID(k.before.Lease)
		}
		all[each.Key] = k
	}
	for _, each := range f.params.Delete {
		if each.Key != "" {
			all[each.Key] = change{each.Key, s.keys[each.Key], nil}
		}
	}
	for _, found := range s.spans {
		for _, kv := range found {
			all[string(kv.Key)] = change{string(kv.Key), kv, nil}
		}
	}
	names := slices.Sorted(maps.Keys(all))
	var read []string
	for _, each := range f.params.Compare {
		read = append(read, each.Key)
	}
	if err := (keyvalue.Limits{Config: configKey + "." + f.name, Allow: f.Allow, Deny: f.Deny}).Check(names,
		read); err != nil {
		return nil, err
	}
	if n := len(all) + len(f.spans) + len(f.params.Compare) + ourOps; n > maxOps {
		return nil, tooMany(n)
	}
	size := 0
	changes := make([]change, len(names))
	for i, name := range names {
		k := all[name]
		changes[i] = k
		size += 3 * len(name) // it is in a condition, an operation and the images
		if k.before != nil {
			size += len(k.before.Value)
		}
		if k.after != nil {
			size += len(k.after.Value)
		}
	}
	if size > maxBytes {
		return nil, refused(
			"the keys of the step hold %s, before and after it, and the transaction of a step may have %d; make several "+
				"steps of it; nothing was changed", activities.CountOf(size, "byte"), maxBytes)
	}
	return changes, nil
}

// countChanges counts keys that come, go and change.
func countChanges(changes []change) (n [3]int) {
	for _, k := range changes {
		switch {
		case k.isUnchanged():
		case k.before == nil:
			n[0]++
		case k.after == nil:
			n[1]++
		default:
			n[2]++
		}
	}
	return n
}

func summarize(n [3]int) string { return keyvalue.DescribeChanges(n) }

// digest covers the parameters, and the keys as they were.
func (f *forward) digest(changes []change) (activities.Digest, error) {
	raw, err := json.Marshal(f.params)
	parts := [][]byte{[]byte(f.name), raw}
	for _, k := range changes {
		parts = append(parts, []byte(k.key), []byte(strconv.FormatInt(modOf(k.before), 10)))
		if k.before != nil {
			parts = append(parts, k.before.Value)
		}
	}
	return activities.DigestOf(parts...), err
}

// operations are the transaction of the step: the conditions under which it happens, beside those
// of the author, and what it does.
func (f *forward) operations(s snapshot, changes []change) (conditions []client.Cmp, then []client.Op, images []image) {
	for _, k := range changes {
		conditions = append(conditions, unchanged(k.key, k.before))
		i := image{Key: []byte(k.key)}
		if k.before != nil {
			i.Before = &value{k.before.Value, client.LeaseID(k.before.Lease)}
		}
		switch {
		case k.after != nil:
			i.Left = &left{activities.DigestOf(k.after.Value), k.after.Lease}
			then = append(then, client.OpPut(k.key, string(k.after.Value), client.WithLease(k.after.Lease)))
		case k.before != nil:
			then = append(then, client.OpDelete(k.key))
		}
		images = append(images, i)
	}
	for _, each := range f.spans { // a key that has come meanwhile
		conditions = append(conditions, client.Compare(client.ModRevision(each.from), "<", s.revision+1).WithRange(each.to))
	}
	for _, each := range f.params.Compare {
		conditions = append(conditions, each.cmp())
	}
	return conditions, then, images
}

// checkConditions refuses a step whose author's conditions do not hold.
func (f *forward) checkConditions(s snapshot) error {
	for i, each := range f.params.Compare {
		is := s.keys[each.Key]
		problem := ""
		switch {
		case each.Exists != nil && *each.Exists && is == nil, each.Exists == nil && is == nil &&
			(each.Value != nil || *each.ModRevision != 0):
			problem = "is not there"
		case each.Exists != nil && !*each.Exists && is != nil:
			problem = "is there"
		case each.Value != nil && string(is.Value) != *each.Value:
			problem = "has another value: " + f.show(each.Key, is.Value)
		case each.ModRevision != nil && modOf(is) != *each.ModRevision:
			problem = fmt.Sprintf("has mod revision %d, and not %d", modOf(is), *each.ModRevision)
		}
		if problem != "" {
			return activities.Errorf(activities.ActionDenied, "compare[%d]: key %q %s; nothing was changed", i, each.Key,
				problem)
		}
	}
	return nil
}

const (
	shownKeys  = 50
	shownBytes = 200
)

// show is a value as people see it.
func (c *connection) show(key string, raw []byte) string {
	if keyvalue.MatchesAny(c.Sensitive, key) {
		return "***"
	}
	if len(raw) > shownBytes {
		return strconv.Quote(string(raw[:shownBytes])) + fmt.Sprintf("... (%s)", activities.CountOf(len(raw), "byte"))
	}
	return strconv.Quote(string(raw))
}

func (c *connection) showLeased(key string, raw []byte, lease client.LeaseID) string {
	if lease == client.NoLease {
		return c.show(key, raw)
	}
	return c.show(key, raw) + fmt.Sprintf(" on lease %x", int64(lease))
}

// showChanges shows keys that change, each with what goes and what comes.
func (c *connection) showChanges(changes []change) string {
	var b strings.Builder
	shown := 0
	for _, k := range changes {
		if k.isUnchanged() {
			continue
		}
		if shown++; shown > shownKeys {
			continue
		}
		fmt.Fprintf(&b, "%q\n", k.key)
		if k.before != nil {
			fmt.Fprintf(&b, "- %s\n", c.showLeased(k.key, k.before.Value, client.LeaseID(k.before.Lease)))
		}
		if k.after != nil {
			fmt.Fprintf(&b, "+ %s\n", c.showLeased(k.key, k.after.Value, k.after.Lease))
		}
	}
	if shown > shownKeys {
		fmt.Fprintf(&b, "... and %s\n", activities.CountOf(shown-shownKeys, "more key"))
	}
	return b.String()
}
