package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// configKey is where a worker's config names the databases, and kind what people call one.
const (
	configKey = "etcd.databases"
	kind      = "etcd"
)

// Config names the databases of a worker.
type Config struct {
	// Databases are the databases that steps may use, by the name that they use.
	Databases map[string]Database
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// Database is an etcd cluster, and what steps may do to it.
type Database struct {
	// Endpoints are the addresses of its members, such as https://10.0.0.1:2379.
	Endpoints []string
	// User is the worker's user; empty where the cluster asks for none.
	User string
	// Password returns that of User. It is called for each connection, so that a rotated password
	// takes effect. Defaults to none.
	Password func() (string, error)
	// TLS are the files for https:// endpoints. Defaults to the certificates that the machine trusts.
	TLS TLS
	// Namespace is what all keys of the database begin with, the journal's too, and what steps leave
	// out: several databases can share a cluster, as etcd itself has one only. Defaults to the whole
	// cluster.
	Namespace string
	// Allow are the keys that steps may change, as patterns with * such as /app/*. Defaults to all.
	Allow []string
	// Deny are keys that steps may neither read nor change. It outranks Allow. Defaults to none.
	Deny []string
	// Sensitive are keys whose values are not shown. Defaults to none.
	Sensitive []string
}

// TLS are files in PEM format.
type TLS struct {
	// CA has the certificates that sign those of the members. Defaults to those that the machine
	// trusts.
	CA string `yaml:"ca"`
	// Cert and Key are the worker's own certificate and its key, where the cluster asks for them.
	// Default to none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	problems := []error{keyvalue.CheckNames(configKey, c.Databases)}
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(configKey+format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Databases)) {
		d := c.Databases[name]
		if len(d.Endpoints) == 0 || slices.Contains(d.Endpoints, "") {
			bad(".%s.endpoints: name the members, such as [https://10.0.0.1:2379]", name)
		}
		if (d.User == "") != (d.Password == nil) {
			bad(".%s: user and password: give both, or neither", name)
		}
		if (d.TLS.Cert == "") != (d.TLS.Key == "") {
			bad(".%s.tls: cert and key: give both, or neither", name)
		}
		if slices.Contains(slices.Concat(d.Allow, d.Deny, d.Sensitive), "") {
			bad(".%s: a pattern of keys is empty; write one such as /app/*, where * stands for any text", name)
		}
	}
	return errors.Join(problems...)
}

// world is what the actions share.
type world struct{ Config }

// New makes the world "etcd". It connects to nothing.
func New(c Config) (activities.World, error) {
	if err := c.Validate(); err != nil {
		return activities.World{}, err
	}
	w := &world{c}
	made := activities.World{Name: "etcd", Journal: w.journalID, Actions: []activities.Action{&txnAction{w}}}
	if c.LookOnly {
		made.Journal = func(context.Context) (string, error) { return "", nil }
	} else {
		made.Records = recordkeeping.Records{Journals: journals{w}}
	}
	return made, nil
}

// journalID names the journals of all databases that answer.
func (w *world) journalID(ctx context.Context) (string, error) {
	return keyvalue.JoinJournals(ctx, w.Databases, w.ensureJournal)
}

// open connects for an entry.
func (w *world) open(ctx context.Context, e activities.Entry) (*connection, error) {
	name, id, err := keyvalue.LocateJournal(configKey, e, w.Databases)
	if err != nil {
		return nil, err
	}
	c, err := w.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	c.id = id
	return c, nil
}
