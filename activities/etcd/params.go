package etcd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
)

// txnParams are the parameters of etcd.txn.
type txnParams struct {
	Database string      `json:"database" jsonschema:"the name of one of the worker's etcd.databases"`
	Compare  []condition `json:"compare,omitempty" jsonschema:"conditions that must hold, or nothing is changed"`
	Put      []put       `json:"put,omitempty" jsonschema:"keys that get a value"`
	Delete   []deletion  `json:"delete,omitempty" jsonschema:"keys that go"`
}

// condition is one of exists, value and mod_revision.
type condition struct {
	Key         string  `json:"key" jsonschema:"the key that is compared"`
	Exists      *bool   `json:"exists,omitempty" jsonschema:"whether the key has to be there"`
	Value       *string `json:"value,omitempty" jsonschema:"the value that the key has to have"`
	ModRevision *int64  `json:"mod_revision,omitempty" jsonschema:"the revision of the last change of the key"`
}

type put struct {
	Key       string `json:"key" jsonschema:"the key"`
	Value     string `json:"value" jsonschema:"its new value"`
	Lease     string `json:"lease,omitempty" jsonschema:"an existing lease, as etcdctl prints it; by default the key has none afterwards"`
	KeepLease bool   `json:"keep_lease,omitempty" jsonschema:"leave the key on the lease that it has"`
}

// deletion is a key, all keys with a prefix, or those from one to another.
type deletion struct {
	Key    string `json:"key,omitempty" jsonschema:"one key"`
	Prefix string `json:"prefix,omitempty" jsonschema:"all keys that begin with it"`
	From   string `json:"from,omitempty" jsonschema:"the first key of a range"`
	To     string `json:"to,omitempty" jsonschema:"the first key that is no longer in the range"`
}

const (
	// maxOps is what etcd allows in one transaction, of conditions and of operations (--max-txn-ops).
	maxOps = 128
	// maxBytes is what a transaction may have, with the values from before: etcd allows 1.5 MB in a
	// request (--max-request-bytes), and the record has them in base64.
	maxBytes = 1 << 20
	// ourOps are those of a transaction that are not the step's: id, record, images.
	ourOps = 3
	// ours is the prefix of all keys that are not the users'.
	ours = "unwind/"
)

var txnSpec = activities.Spec{
	Name: "etcd.txn", Summary: "Puts and deletes keys of an etcd database in one transaction.",
	Params: activities.ParamsSchema[txnParams](), UndoParams: []string{"database"},
	Outputs: map[string]string{
		"changed":  "how many keys came, went or changed",
		"revision": "the revision of the transaction",
	},
	Keys: []activities.Key{{Prefix: keyPrefix, Param: "database"}}, Risk: activities.Medium, Preflights: true,
	Strategy: activities.Transaction,
	Undo: "Gives every key its value and its lease back, in one transaction; a key whose lease has ended since does " +
		"not come back. " +
		"Revisions and versions go on counting, and whoever watches a key sees the undo as another change.",
}

const keyPrefix = "etcd:"

// span is a range of keys: from, and before to.
type span struct {
	where    string
	from, to string
}

func (s span) holds(key string) bool { return key >= s.from && (s.to == "\x00" || key < s.to) }

// readParams decodes the parameters, and refuses what no database could do.
func readParams(raw json.RawMessage) (p txnParams, spans []span, err error) {
	if p, err = activities.DecodeParams[txnParams](raw); err != nil {
		return p, nil, err
	}
	if len(p.Put)+len(p.Delete) == 0 {
		return p, nil, refused("put, delete: give at least one key that is put or deleted")
	}
	if n := len(p.Put) + len(p.Delete) + len(p.Compare) + ourOps; n > maxOps {
		return p, nil, tooMany(n)
	}
	seen := map[string]string{}
	once := func(where, key string) error {
		if err := checkKey(where, key); err != nil {
			return err
		}
		if other := seen[key]; other != "" {
			return refused("%s: key %q is in %s already: one transaction changes a key once", where, key, other)
		}
		seen[key] = where
		return nil
	}
	for i, each := range p.Put {
		where := fmt.Sprintf("put[%d]", i)
		if err := once(where+".key", each.Key); err != nil {
			return p, nil, err
		}
		if _, err := each.leaseID(where); err != nil {
			return p, nil, err
		}
	}
	for i, each := range p.Compare {
		if err := each.check(fmt.Sprintf("compare[%d]", i)); err != nil {
			return p, nil, err
		}
	}
	for i, each := range p.Delete {
		where := fmt.Sprintf("delete[%d]", i)
		s, err := each.span(where)
		if err == nil && each.Key != "" {
			err = once(where+".key", each.Key)
		}
		if err != nil {
			return p, nil, err
		}
		if each.Key == "" {
			spans = append(spans, s)
		}
	}
	for _, s := range spans {
		for _, each := range p.Put {
			if s.holds(each.Key) {
				return p, nil,
					refused("%s: key %q is put, and in the range that is deleted: one transaction changes a key once", s.where,
						each.Key)
			}
		}
	}
	return p, spans, nil
}

func tooMany(n int) error {
	return refused(
		"the step needs %s and conditions, and one transaction of etcd may have %d; make several steps of it; nothing "+
			"was changed", activities.CountOf(n, "operation"), maxOps)
}

func checkKey(where, key string) error {
	switch {
	case key == "":
		return refused("%s: the key is empty", where)
	case strings.HasPrefix(key, ours):
		return refused("%s: key %q: keys that begin with %s hold the undo records", where, key, ours)
	}
	return nil
}

// leaseID is the lease that a key is put on, if the step names one.
func (p put) leaseID(where string) (client.LeaseID, error) {
	if p.Lease == "" {
		return client.NoLease, nil
	}
	if p.KeepLease {
		return 0, refused("%s: lease and keep_lease: give one of them", where)
	}
	id, err := strconv.ParseInt(p.Lease, 16, 64)
	if err != nil || id <= 0 {
		return 0, refused("%s.lease: %q is no lease; write it as etcdctl prints it, such as 694d7c4ab1f8a205", where, p.Lease)
	}
	return client.LeaseID(id), nil
}

func (c condition) check(where string) error {
	given := 0
	for _, is := range []bool{c.Exists != nil, c.Value != nil, c.ModRevision != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return refused("%s: give one of exists, value and mod_revision", where)
	}
	return checkKey(where+".key", c.Key)
}

// cmp is the condition as etcd has it.
func (c condition) cmp() client.Cmp {
	switch {
	case c.Value != nil:
		return client.Compare(client.Value(c.Key), "=", *c.Value)
	case c.ModRevision != nil:
		return client.Compare(client.ModRevision(c.Key), "=", *c.ModRevision)
	case *c.Exists:
		return client.Compare(client.CreateRevision(c.Key), ">", 0)
	}
	return client.Compare(client.CreateRevision(c.Key), "=", 0)
}

// span is the range that a deletion means; one key is a range too.
func (d deletion) span(where string) (span, error) {
	given := 0
	for _, is := range []bool{d.Key != "", d.Prefix != "", d.From != "" || d.To != ""} {
		if is {
			given++
		}
	}
	if given != 1 || (d.From == "") != (d.To == "") {
		return span{}, refused("%s: give key, or prefix, or from and to", where)
	}
	s := span{where: where, from: d.From, to: d.To}
	switch {
	case d.Key != "":
		return s, nil
	case d.Prefix != "":
		s.from, s.to = d.Prefix, client.GetPrefixRangeEnd(d.Prefix)
	case d.From >= d.To:
		return s, refused("%s: from %q does not come before to %q", where, d.From, d.To)
	}
	if s.holds(ours) || strings.HasPrefix(s.from, ours) {
		return s, refused("%s: the range has keys that begin with %s, which hold the undo records", where, ours)
	}
	return s, nil
}

// explicit are the keys that the parameters name, each once.
func (p txnParams) explicit() (all []string) {
	for _, each := range p.Put {
		all = append(all, each.Key)
	}
	for _, each := range p.Delete {
		if each.Key != "" {
			all = append(all, each.Key)
		}
	}
	for _, each := range p.Compare {
		all = append(all, each.Key)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
