package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"

	etcd "go.etcd.io/etcd/client/v3"

	world "github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
)

// inEtcd is one step on keys of its own, in the one cluster that all tasks share.
type inEtcd struct {
	// Clears makes the step delete a range of keys too, one of which has a lease.
	Clears bool

	id     string
	prefix string // of the keys
}

func drawEtcd(r *rand.Rand) *inEtcd { return &inEtcd{Clears: r.IntN(3) == 0} }

// etcdKeys are the keys before the step; those that end with ! have a lease.
var etcdKeys = map[string]string{"limit": "10", "owner!": "blue", "cache/a": "1", "cache/b!": "2"}

// change is what the step does, as parameters of etcd.txn.
func (p *inEtcd) change(prefix string) map[string]any {
	with := map[string]any{
		"database": appDatabase,
		"put": []map[string]any{
			{"key": prefix + "limit", "value": "20"}, {"key": prefix + "owner", "value": "green", "keep_lease": true},
			{"key": prefix + "made", "value": "new"},
		},
	}
	if p.Clears {
		with["delete"] = []map[string]any{{"prefix": prefix + "cache/"}}
	}
	return with
}

// etcdServer is the server of a run, which keeps all that it has answered.
type etcdServer struct {
	*etcdtest.Server

	client *etcd.Client
	lease  etcd.LeaseID
	// before and after are dumps of the keys of a step; after is that of twins on which we were not,
	// by whether keys are cleared.
	before string
	after  map[bool]string
}

func (r *run) setEtcd(ctx context.Context) (err error) {
	p := &etcdServer{after: map[bool]string{}}
	if p.Server, err = etcdtest.Start(); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { p.Stop(); return nil })
	if p.client, err = p.Connect(); err != nil {
		return err
	}
	r.closers = append(r.closers, p.client.Close)
	lease, err := p.client.Grant(ctx, 24*60*60)
	if err != nil {
		return err
	}
	r.etcd, p.lease = p, lease.ID
	const twin = "twin/"
	for _, clears := range []bool{false, true} {
		if err := p.fill(ctx, twin); err != nil {
			return err
		}
		if p.before, err = p.dump(ctx, twin); err != nil {
			return err
		}
		ops := []etcd.Op{
			etcd.OpPut(twin+"limit", "20"), etcd.OpPut(twin+"owner", "green", etcd.WithLease(p.lease)),
			etcd.OpPut(twin+"made", "new"),
		}
		if clears {
			ops = append(ops, etcd.OpDelete(twin+"cache/", etcd.WithPrefix()))
		}
		if _, err := p.client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
		if p.after[clears], err = p.dump(ctx, twin); err != nil {
			return err
		}
	}
	if err := r.serveDatabase("etcd", p, "tcp", "127.0.0.1:0", func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", p.Address())
	}); err != nil {
		return err
	}
	endpoint := "http://" + r.databases["etcd"].wire.listener.Addr().String()
	for _, m := range r.fleet.members {
		m.Config = m.With(
			&world.Settings{Databases: map[string]world.DatabaseSettings{appDatabase: {Endpoints: []string{endpoint}}}})
	}
	return nil
}

// fill makes the keys with a prefix anew.
func (p *etcdServer) fill(ctx context.Context, prefix string) error {
	return insist(ctx, func() error {
		if _, err := p.client.Delete(ctx, prefix, etcd.WithPrefix()); err != nil {
			return err
		}
		var ops []etcd.Op
		for _, key := range slices.Sorted(maps.Keys(etcdKeys)) {
			name, isLeased := strings.CutSuffix(key, "!")
			var options []etcd.OpOption
			if isLeased {
				options = append(options, etcd.WithLease(p.lease))
			}
			ops = append(ops, etcd.OpPut(prefix+name, etcdKeys[key], options...))
		}
		_, err := p.client.Txn(ctx).Then(ops...).Commit()
		return err
	})
}

// dump is what the keys with a prefix hold.
func (p *etcdServer) dump(ctx context.Context, prefix string) (text string, err error) {
	err = insist(ctx, func() error {
		text, err = etcdtest.Dump(ctx, p.client, prefix)
		return err
	})
	return text, err
}

// lingering is nothing: a connection of etcd holds nothing that outlives it.
func (p *etcdServer) lingering(context.Context) ([]string, error) { return nil, nil }

func (p *inEtcd) name(n int) { p.id = fmt.Sprintf("etcd-%d", n) }

func (p *inEtcd) actions() []string { return []string{"etcd.txn"} }

func (p *inEtcd) firstStep() string { return p.id }

func (p *inEtcd) host() (int, bool) { return 0, false }

func (p *inEtcd) setUp(ctx context.Context, r *run, task string) error {
	p.prefix = task + "-" + p.id + "/"
	return r.etcd.fill(ctx, p.prefix)
}

func (p *inEtcd) steps() []map[string]any {
	return []map[string]any{{"id": p.id, "uses": "etcd.txn", "with": p.change(p.prefix)}}
}

func (p *inEtcd) judgePart(ctx context.Context, r *run, e taskEnd) (v verdict, err error) {
	now, err := r.etcd.dump(ctx, p.prefix)
	if err != nil {
		return v, err
	}
	v.compareDumps(p.id, r.etcd.before, r.etcd.after[p.Clears], now, e)
	for _, token := range e.tokens(p.id) {
		var record struct{ State string }
		var images int
		if err := insist(ctx, func() error {
			found, err := r.etcd.client.Txn(ctx).Then(etcd.OpGet("unwind/record/"+token),
				etcd.OpGet("unwind/images/"+token)).Commit()
			if err != nil {
				return err
			}
			images = len(found.Responses[1].GetResponseRange().Kvs)
			kept := found.Responses[0].GetResponseRange().Kvs
			if len(kept) == 0 {
				return nil // it has never begun
			}
			return json.Unmarshal(kept[0].Value, &record)
		}); err != nil {
			return v, err
		}
		v.judgeRecord(p.id, token, record.State, e.committed() && token == e.token(p.id))
		if images > 0 && record.State != "applied" {
			v.Orphaned = append(v.Orphaned,
				fmt.Sprintf("%s: what the keys held before token %s is kept, and its record is %q", p.id, token, record.State))
		}
	}
	return v, nil
}

func (p *inEtcd) clear(ctx context.Context, r *run) error {
	return insist(ctx, func() error {
		_, err := r.etcd.client.Delete(ctx, p.prefix, etcd.WithPrefix())
		return err
	})
}

func (p *inEtcd) String() string { return fmt.Sprintf("%s: clears %v", p.id, p.Clears) }
