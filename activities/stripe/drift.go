package stripe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// unpaid stands for every status in which a payment intent holds no money: it moves through them by
// itself.
const unpaid = "unpaid"

var unpaidStatus = []string{"requires_payment_method", "requires_confirmation", "requires_action"}

// findDrift compares the fields that the step set, and lists what was built on the object since. It
// returns nil if nothing differs.
func (c *session) findDrift(k *kind, req request, o object) (*activities.Drift, error) {
	left, now := map[string]any{}, map[string]any{}
	for path, value := range req.leaves {
		left[path], now[path] = value, o.valueAt(path)
		switch {
		case path == "metadata":
			now[path], left[path] = withoutNotes(o)[path], withoutNotes(object{path: value})[path]
		case value == unpaid && slices.Contains(unpaidStatus, o.text(path)):
			now[path] = unpaid
		}
	}
	if k.users != nil {
		ids, err := c.listDependents(k.users, o)
		if err != nil {
			return nil, err
		}
		left[k.users.what], now[k.users.what] = []string{}, ids
	}
	var diff strings.Builder
	for _, path := range slices.Sorted(maps.Keys(left)) {
		if was, is := jsonLine(left[path]), jsonLine(now[path]); !bytes.Equal(was, is) {
			fmt.Fprintf(&diff, "- %s: %s\n+ %s: %s\n", path, was, path, is)
		}
	}
	if diff.Len() == 0 {
		return nil, nil
	}
	return &activities.Drift{
		Digest: activities.DigestOf([]byte(o.text("id")), jsonLine(now)),
		Diff:   fmt.Sprintf("%s %s\n%s", k.noun, o.text("id"), diff.String()),
	}, nil
}

func (c *session) listDependents(u *dependents, o object) (ids []string, err error) {
	filter := url.Values{u.owner: {o.text("id")}}
	if u.active {
		filter.Set("active", "true")
	}
	ids = []string{}
	_, err = c.listObjects(u.list, filter, func(user object) { ids = append(ids, user.text("id")) })
	slices.Sort(ids)
	return ids, err
}

// jsonLine encodes a value as JSON, with sorted keys.
func jsonLine(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came out of JSON, or is ours
	}
	return raw
}

// withoutNotes is a copy of an object without Unwind's notes.
func withoutNotes(o object) object {
	own := map[string]any{}
	switch m := o["metadata"].(type) {
	case map[string]any:
		maps.Copy(own, m)
	case map[string]string:
		for name, value := range m {
			own[name] = value
		}
	}
	maps.DeleteFunc(own, func(name string, _ any) bool { return strings.HasPrefix(name, markPrefix) })
	clean := maps.Clone(o)
	clean["metadata"] = own
	return clean
}
