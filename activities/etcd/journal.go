package etcd

import (
	"context"
	"encoding/json"
	"time"

	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// The keys of the journal. A record and its images are apart, so that a listing reads no values.
// The third key of a token is there while somebody needs its record: it tells of holders that are
// gone from that.
const (
	idKey        = ours + "journal"
	recordPrefix = ours + "record/"
	imagesPrefix = ours + "images/"
	heldPrefix   = ours + "held/"
)

// record is what the journal has of a token.
type record struct {
	// Record has an outcome before its undo has ended, too: the keys have been put back then, and have
	// still to be looked at.
	recordkeeping.Record

	// Token is whose record it is.
	Token string            `json:"token,omitempty"`
	Entry *activities.Entry `json:"entry,omitempty"`
	Owner activities.Owner  `json:"owner,omitzero"`
	Since time.Time         `json:"since,omitzero"`
	// Acted says that the step has acted: its images are there until they are released.
	Acted bool `json:"acted,omitempty"`
	// Images is the digest of its images.
	Images activities.Digest `json:"images,omitempty"`
	// Private says that the parameters held secrets: what somebody has made of the keys is not shown.
	Private bool   `json:"private,omitempty"`
	Counts  [3]int `json:"counts,omitzero"` // keys that came, went and changed
	Bytes   int64  `json:"bytes,omitempty"`
}

// readRecord reads what the journal has under a token. It is not whole if it is that of another
// token, or says what no record says.
func readRecord(token string, raw []byte) (r record, whole bool) {
	if json.Unmarshal(raw, &r) != nil || r.Token != token {
		return r, false
	}
	if r.Forgotten {
		return r, r.State == recordkeeping.Undone || r.State == recordkeeping.Released
	}
	if r.Entry == nil || r.Entry.Token != token {
		return r, false
	}
	switch r.State {
	case recordkeeping.Applied:
		return r, r.Acted && r.Outcome == nil
	case recordkeeping.Undone:
		return r, r.Outcome != nil
	}
	return r, r.State == recordkeeping.Undoing || r.State == recordkeeping.Released
}

// image is a key of a step: what it held before, and what the step left; nil stands for a key that
// was not there.
type image struct {
	Key    []byte `json:"key"`
	Before *value `json:"before,omitempty"`
	Left   *left  `json:"left,omitempty"`
}

type value struct {
	Value []byte         `json:"value"`
	Lease client.LeaseID `json:"lease,omitempty"`
}

type left struct {
	Digest activities.Digest `json:"digest"` // of the value
	Lease  client.LeaseID    `json:"lease,omitempty"`
}

// newRecord is the record of an entry that has none.
func newRecord(ctx context.Context, e activities.Entry, state string) record {
	return record{Record: recordkeeping.Record{State: state}, Token: e.Token, Entry: &e, Owner: activities.OwnerOf(ctx),
		Since: time.Now().UTC()}
}

// ensureJournal returns the id of a database's journal, and makes the journal if there is none.
func (w *world) ensureJournal(ctx context.Context, name string) (string, error) {
	c, err := w.connect(ctx, name)
	if err != nil {
		return "", err
	}
	defer c.end()
	made := recordkeeping.NewJournalID()
	limited, end := c.limited()
	defer end()
	r, err := c.client.Txn(limited).If(client.Compare(client.CreateRevision(idKey), "=", 0)).
		Then(client.OpPut(idKey, made)).Else(client.OpGet(idKey)).Commit()
	if err != nil || r.Succeeded {
		return made, c.explain(err)
	}
	return string(r.Responses[0].GetResponseRange().Kvs[0].Value), nil
}

// expectFound expects whatever journal the database has; there is false if it has none.
func (c *connection) expectFound() (there bool, err error) {
	limited, end := c.limited()
	defer end()
	r, err := c.client.Get(limited, idKey)
	if err != nil || len(r.Kvs) == 0 {
		return false, c.explain(err)
	}
	c.id = string(r.Kvs[0].Value)
	return true, nil
}

// store writes a record if the journal is the one that the call expects and the record has not
// changed since it was read: its mod revision, 0 if there was none. More operations are done in the
// same transaction, under more conditions.
func (c *connection) store(token string, seen int64, r record, conditions []client.Cmp,
	then ...client.Op) (*client.TxnResponse, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	conditions = append([]client.Cmp{
		client.Compare(client.Value(idKey), "=", c.id), client.Compare(client.ModRevision(recordPrefix+token), "=", seen),
	}, conditions...)
	return c.commit(conditions, append([]client.Op{client.OpPut(recordPrefix+token, string(raw))}, then...))
}

func (c *connection) damaged(token, what string) error {
	return activities.Errorf(activities.DamagedRecord,
		"database %s: the step with token %s has acted, and the journal (keys that begin with %s) %s (were the data put "+
			"back to an earlier state?): "+
			"nothing was touched; bring the record back, or decide what becomes of the step", c.name, token, ours, what)
}

// explainJournal says what it means that the journal has another id; empty if there is none.
func (c *connection) explainJournal(is string) error {
	if is == "" {
		return activities.Errorf(activities.DamagedRecord,
			"database %s: its journal (%s), in which the undo records are, is gone: the data were lost or deleted; nothing "+
				"was touched; "+
				"bring the data back, or decide what becomes of the step", c.name, idKey)
	}
	return activities.Errorf(activities.WrongPlace,
		"the record is in journal %s; what this worker's config calls %s has journal %s: it is another database, or its "+
			"journal was lost with its data",
		c.id, c.name, is)
}
