package etcd

import (
	"encoding/json"

	"go.etcd.io/etcd/api/v3/mvccpb"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// snapshot is what a database holds at one revision.
type snapshot struct {
	revision int64
	record   *record // nil if the token has none
	seen     int64   // the mod revision of the record; 0 if there is none
	acted    int64   // the revision at which the record was created, and so that of what its step has put
	images   []image
	problem  error                       // what is wrong with the images: an undo needs them, and nothing else does
	keys     map[string]*mvccpb.KeyValue // those that are there
	spans    [][]*mvccpb.KeyValue
}

// look reads the record of a token, keys and spans, all at the last revision.
func (c *connection) look(token string, keys []string, spans []span) (snapshot, error) {
	return c.lookAt(0, token, keys, spans)
}

// lookAt is look at a revision; 0 stands for the last one.
func (c *connection) lookAt(revision int64, token string, keys []string, spans []span) (snapshot, error) {
	var then []client.Op
	for _, key := range append([]string{idKey, recordPrefix + token, imagesPrefix + token}, keys...) {
		then = append(then, client.OpGet(key, client.WithRev(revision)))
	}
	for _, each := range spans {
		then = append(then,
			client.OpGet(each.from, client.WithRange(each.to), client.WithLimit(maxOps), client.WithRev(revision)))
	}
	r, err := c.commit(nil, then)
	if err != nil {
		return snapshot{}, c.explain(err)
	}
	found := func(i int) []*mvccpb.KeyValue { return r.Responses[i].GetResponseRange().Kvs }
	switch id := found(0); {
	case len(id) == 0:
		return snapshot{}, c.explainJournal("")
	case string(id[0].Value) != c.id:
		return snapshot{}, c.explainJournal(string(id[0].Value))
	}
	s := snapshot{revision: r.Header.Revision, keys: map[string]*mvccpb.KeyValue{}}
	if at := found(1); len(at) > 0 {
		r, whole := readRecord(token, at[0].Value)
		if !whole {
			return snapshot{}, c.damaged(token, "has a record of it that is damaged")
		}
		s.record, s.seen, s.acted = &r, at[0].ModRevision, at[0].CreateRevision
		s.images, s.problem = c.readImages(token, r, found(2))
	} else if len(found(2)) > 0 {
		return snapshot{}, c.damaged(token, "has lost its record")
	}
	for i, key := range keys {
		if at := found(ourOps + i); len(at) > 0 {
			s.keys[key] = at[0]
		}
	}
	for i := range spans {
		s.spans = append(s.spans, found(ourOps+len(keys)+i))
	}
	return s, nil
}

// readImages reads the images of a token. The record has their digest, so that those of another
// token, or others of this one, are noticed.
func (c *connection) readImages(token string, r record, found []*mvccpb.KeyValue) (images []image, problem error) {
	switch {
	case len(found) > 0:
		raw := found[0].Value
		if activities.DigestOf(raw) != r.Images || json.Unmarshal(raw, &images) != nil {
			return nil, c.damaged(token, "has a record of it that is damaged")
		}
	case r.Acted && (r.State == recordkeeping.Applied || r.State == recordkeeping.Undoing):
		return nil, c.damaged(token, "has lost what its keys held before")
	}
	return images, nil
}

// modOf is the revision of the last change of a key; 0 if it is not there.
func modOf(kv *mvccpb.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.ModRevision
}

// unchanged is the condition that a key is as it was seen.
func unchanged(key string, kv *mvccpb.KeyValue) client.Cmp {
	return client.Compare(client.ModRevision(key), "=", modOf(kv))
}
