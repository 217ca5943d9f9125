package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
	"github.com/seed-62bf7108/unwind/activities/keyvalue/keyvaluetest"
	"github.com/seed-62bf7108/unwind/activities/point"
)

const several = `{"put": [{"key": "name", "value": "cut here"}, {"key": "made", "value": "1"}], "delete": [{"prefix": "tmp/"}]}`

func TestAServerThatIsKilledKeepsRecordAndChange(t *testing.T) {
	server := etcdtest.Own(t)
	d := on(t, server, "", app)
	before := d.dump()
	s := d.txn(several)
	first := s.apply()
	server.Kill()
	_, err := s.action().Undo(t.Context(), s.entry, activities.Decision{})
	require.EqualError(t, err, "database main: the server cannot be reached, or does not answer; it is tried again")
	require.False(t, activities.TypeOf(err).Final())
	require.NoError(t, server.Restart())
	require.Equal(t, first, s.apply())
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// A line that is cut before the server has the transaction, or when it has committed it and has not
// said so.
func TestACutConnection(t *testing.T) {
	for _, answered := range []bool{false, true} {
		d := newDatabase(t, app)
		before := d.dump()
		s := d.txn(several)
		committed := d.client.Watch(t.Context(), d.namespace+"made")
		p := keyvaluetest.Proxy{Text: "cut here", Answered: answered, Acted: func() { <-committed }}
		d.at("http://" + p.Listen(t, "tcp", "127.0.0.1:0", d.server.Address()))
		_, err := s.action().Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "it is tried again")
		d.at(d.server.Endpoint())
		if !answered {
			s.sees(activities.AsBefore)
			s.decide(activities.Decision{}, activities.Nothing)
		} else {
			s.sees(activities.AsLeft)
			require.Equal(t, 4, s.apply().Outputs["changed"], "a second attempt acted again")
			s.undo(activities.Restored)
		}
		require.Equal(t, before, d.dump())
		_, err = s.action().Apply(t.Context(), s.entry, s.with, "")
		require.Equal(t, activities.Fenced, activities.TypeOf(err))
	}
}

// A stopped server costs a call its deadline, and no more. What it does with the request once it
// goes on is found out from the record.
func TestAStalledServer(t *testing.T) {
	server := etcdtest.Own(t)
	d := on(t, server, "", app)
	before := d.dump()
	s := d.txn(several)
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	limited, end := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer end()
	cancelled, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
	for _, ctx := range []context.Context{limited, cancelled} {
		_, err := s.action().Apply(ctx, s.entry, s.with, "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.NoError(t, server.Signal(syscall.SIGCONT))
	s.decide(activities.Decision{}, activities.Nothing)
	require.Equal(t, before, d.dump())
}

// A key that comes into a range, or changes, between looking and acting is seen: the step looks
// again.
func TestAChangeBetweenLookingAndActing(t *testing.T) {
	for _, each := range []string{"tmp/3", "tmp/1", "name"} {
		d := newDatabase(t, app)
		s := d.txn(several)
		before := ""
		p := keyvaluetest.Proxy{Text: "cut here", Answered: true, Acted: func() {}, Ended: make(chan struct{}),
			Found: func() {
				d.put(each, "of somebody else")
				before = d.dump()
			}}
		d.at("http://" + p.Listen(t, "tcp", "127.0.0.1:0", d.server.Address()))
		_, err := s.action().Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "it is tried again")
		<-p.Ended
		d.at(d.server.Endpoint())
		require.Equal(t, before, d.dump(), "the transaction was committed over a change of somebody else")
		s.apply()
		require.NotContains(t, d.dump(), "of somebody else")
		s.undo(activities.Restored)
		require.Equal(t, before, d.dump())
	}
}

// An undo says what it has seen after its transaction, and not what that should have done.
func TestAnUndoLooksAtWhatItHasPutBack(t *testing.T) {
	d := newDatabase(t, app)
	s := d.txn(several)
	s.apply()
	p := keyvaluetest.Proxy{Text: "old name", Instead: "odd name"}
	d.at("http://" + p.Listen(t, "tcp", "127.0.0.1:0", d.server.Address()))
	u := s.undo(activities.Residue)
	require.Equal(t, `put back, and then not as before: "name"`, u.Observed)
	require.Equal(t, u, s.undo(activities.Residue))
	require.Contains(t, d.dump(), `"name" "odd name"`)
}

// What others change once the keys were put back is not counted against an undo, unless that could
// not look before.
func TestAChangeBehindAnUndo(t *testing.T) {
	defer point.Hook(nil)
	for _, interrupted := range []bool{false, true} {
		d := newDatabase(t, app)
		s := d.txn(several)
		s.apply()
		ctx, interrupt := context.WithCancel(t.Context())
		point.Hook(func(label string) {
			if label == "etcd.txn:restored" {
				d.put("name", "of somebody else")
				if interrupted {
					interrupt()
				}
			}
		})
		u, err := s.action().Undo(ctx, s.entry, activities.Decision{})
		interrupt()
		if !interrupted {
			require.NoError(t, err)
			require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		s.sees(activities.Elsewise)
		d.put("name", app["name"])
		s.sees(activities.AsBefore)
		d.remove("name")
		u = s.decide(activities.Decision{Done: true}, activities.Residue)
		require.Equal(t, []string{`"name"`}, u.Losses)
	}
}

// What a database has lost is reported as damage, and never as nothing to undo.
func TestARecordThatIsGoneIsDamage(t *testing.T) {
	for _, lost := range []string{"unwind/record/", "unwind/images/", "unwind/journal"} {
		d := newDatabase(t, app)
		s := d.txn(several)
		s.apply()
		left := d.dump()
		_, err := d.client.Delete(t.Context(), d.namespace+lost, client.WithPrefix())
		require.NoError(t, err)
		for _, decision := range []activities.Decision{{}, {Done: true}} {
			_, err = s.action().Undo(t.Context(), s.entry, decision)
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%s: %v", lost, err)
		}
		_, err = s.action().Observe(t.Context(), s.entry)
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%s: %v", lost, err)
		if lost == "unwind/record/" {
			_, err = s.action().Apply(t.Context(), s.entry, s.with, "")
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
			err = s.action().Release(t.Context(), s.entry)
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		}
		require.Equal(t, left, d.dump())
		if lost == "unwind/images/" { // a person can give it up
			require.NoError(t, d.world.Records.Abandon(t.Context(), s.entry.Token))
			require.NoError(t, s.action().Release(t.Context(), s.entry))
			s.decide(activities.Decision{Done: true}, activities.Residue)
		}
		if lost == "unwind/journal" { // those who keep records make no other one
			held, err := d.world.Records.Hold(t.Context(), s.entry.Token, activities.Owner{Workflow: "w"})
			require.NoError(t, err)
			require.True(t, held, "the undo tells")
			require.NoError(t, d.world.Records.Commit(t.Context(), s.entry.Token, time.Now()))
			_, err = s.action().Undo(t.Context(), s.entry, activities.Decision{Done: true})
			require.ErrorContains(t, err, "is gone: the data were lost or deleted")
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
			_, err = d.world.Journal(t.Context()) // of the next task
			require.NoError(t, err)
			_, err = s.action().Undo(t.Context(), s.entry, activities.Decision{Done: true})
			require.ErrorContains(t, err, "or its journal was lost with its data")
			require.Equal(t, activities.WrongPlace, activities.TypeOf(err))
		}
	}
	d := newDatabase(t, app)
	s := d.txn(several)
	s.apply()
	for _, part := range []string{"unwind/images/", "unwind/record/"} {
		d.put(part+s.entry.Token, `{"state": `)
		_, err := s.action().Undo(t.Context(), s.entry, activities.Decision{})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
	}
	_, problems, err := d.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], "token "+s.entry.Token+": its record is damaged")
}

// Two steps have acted. Each document of the first one is deleted, cut, replaced by that of the
// second one, or put back to what it was before: whatever the history knows, the undo is right or
// says that the record is damaged, and what is left is undone rightly afterwards.
func TestHarmToEachDocument(t *testing.T) {
	for _, document := range []string{"unwind/record/", "unwind/images/"} {
		for _, harm := range []string{"deleted", "cut", "another's", "another's, which is undone",
			"another's, which is forgotten", "of before the fence", "of before the undo"} {
			for _, decision := range []activities.Decision{{}, {Done: true}} {
				t.Run(fmt.Sprintf("%s %s, done %t", document, harm, decision.Done), func(t *testing.T) {
					d := newDatabase(t, app)
					before := d.dump()
					s, other := d.txn(several), d.txn(`{"put": [{"key": "a", "value": "of the other"}]}`)
					s.apply()
					mine := document + s.entry.Token
					whole, changed := d.read(mine), ""
					left := d.dump()
					want := activities.Restored
					switch harm {
					case "cut":
						changed = whole[:len(whole)/2]
					case "another's":
						other.apply()
						left = d.dump()
						changed = d.read(document + other.entry.Token)
					case "another's, which is undone", "another's, which is forgotten":
						other.apply()
						other.undo(activities.Restored)
						if harm != "another's, which is undone" {
							require.NoError(t, other.action().Release(t.Context(), other.entry))
							require.NoError(t, d.world.Records.Forget(t.Context(), other.entry.Token))
						}
						changed = d.read(document + other.entry.Token) // it has no images any more
					case "of before the fence":
						d.put("name", "of somebody else")
						s.decide(decision, activities.Drifted)
						d.put("name", "cut here")
						changed = whole
					case "of before the undo":
						s.undo(activities.Restored)
						left, changed, whole = before, whole, d.read(mine)
					}
					d.write(mine, changed)
					u, err := s.action().Undo(t.Context(), s.entry, decision)
					if err != nil {
						require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
						require.Equal(t, left, d.dump())
						_, err = s.action().Observe(t.Context(), s.entry)
						if err == nil {
							require.Equal(t, before, d.dump())
						}
						if _, err := s.action().Apply(t.Context(), s.entry, s.with, ""); err == nil ||
							activities.TypeOf(err) != activities.Fenced {
							require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
						}
						require.Error(t, s.action().Release(t.Context(), s.entry))
						require.Equal(t, left, d.dump())
						d.write(mine, whole)
						u, err = s.action().Undo(t.Context(), s.entry, decision)
					}
					require.NoError(t, err)
					require.Equal(t, want, u.Outcome)
					if harm == "another's" {
						other.undo(activities.Restored)
					}
					require.Equal(t, before, d.dump())
				})
			}
		}
	}
}

// A record that does not say what its images were, or whose it is, could be another's.
func TestARecordWithoutDigest(t *testing.T) {
	for _, name := range []string{"token", "images"} {
		d := newDatabase(t, app)
		s := d.txn(several)
		s.apply()
		left := d.dump()
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(d.read("unwind/record/"+s.entry.Token)), &fields))
		delete(fields, name)
		raw, err := json.Marshal(fields)
		require.NoError(t, err)
		d.write("unwind/record/"+s.entry.Token, string(raw))
		_, err = s.action().Undo(t.Context(), s.entry, activities.Decision{Done: true})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		require.Equal(t, left, d.dump())
	}
}

// read returns the value of a key; empty if it is not there.
func (d *database) read(key string) string {
	d.Helper()
	r, err := d.client.Get(d.Context(), d.namespace+key)
	require.NoError(d, err)
	for _, kv := range r.Kvs {
		return string(kv.Value)
	}
	return ""
}

// write sets a key, or removes it where the value is empty.
func (d *database) write(key, value string) {
	d.Helper()
	if value == "" {
		d.remove(key)
		return
	}
	d.put(key, value)
}

// A listing reads many records in one round trip, and says nothing of those that are forgotten.
func TestAListingOfManyRecords(t *testing.T) {
	d := newDatabase(t, nil)
	var live []string
	for n := range 620 {
		s := d.txn(`{"put": [{"key": "a", "value": "1"}]}`)
		s.apply()
		if n >= 20 {
			live = append(live, s.entry.Token)
			continue
		}
		require.Error(t, d.world.Records.Forget(t.Context(), s.entry.Token))
		require.NoError(t, s.action().Release(t.Context(), s.entry))
		require.NoError(t, d.world.Records.Forget(t.Context(), s.entry.Token))
	}
	all, problems, err := d.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	var listed []string
	for _, r := range all {
		listed = append(listed, r.Entry.Token)
	}
	require.ElementsMatch(t, live, listed)
}

func preflight(t *testing.T, c etcd.Database) error {
	t.Helper()
	w, err := etcd.New(etcd.Config{Databases: map[string]etcd.Database{"main": c}})
	require.NoError(t, err)
	preflighter, _ := w.Actions[0].(activities.Preflighter)
	return preflighter.Preflight(t.Context(),
		activities.Outlook{Step: activities.Step{With: []byte(`{"database": "main", "put": [{"key": "a", "value": "b"}]}`)}})
}

// TestTheUserOfTheDocumentation works as a user with the rights that docs/etcd.md lists, and no
// others.
func TestTheUserOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/etcd.md")
	require.NoError(t, err)
	server := etcdtest.Own(t)
	admin := server.Client(t)
	ctx := t.Context()
	must := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	fill(t, admin, "", map[string]string{"/app/a": "1", "/app/b": "2", "other": "3"})
	must(admin.RoleAdd(ctx, "root"))
	must(admin.UserAdd(ctx, "root", "root"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "unwind"))
	must(admin.UserAdd(ctx, "unwind", "right"))
	must(admin.UserGrantRole(ctx, "unwind", "unwind"))
	grants := regexp.MustCompile(
		"(?m)^etcdctl role grant-permission unwind --prefix=true readwrite (.*)$").FindAllStringSubmatch(string(page), -1)
	require.Len(t, grants, 2)
	for _, g := range grants {
		must(admin.RoleGrantPermission(ctx, "unwind", g[1], client.GetPrefixRangeEnd(g[1]),
			client.PermissionType(client.PermReadWrite)))
	}
	must(admin.AuthEnable(ctx))

	secret := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	at := []string{server.Endpoint()}
	for want, c := range map[string]etcd.Database{
		"the server refuses the worker's user or password; correct etcd.databases.main.user": {Endpoints: at, User: "unwind",
			Password: secret("wrong")},
		"the server asks for a user: give user and password in etcd.databases.main": {Endpoints: at},
		"the secret that holds the password is empty": {Endpoints: at, User: "unwind",
			Password: secret("")},
		"does not allow steps to change it": {Endpoints: at, User: "unwind",
			Password: secret("right"), Allow: []string{"/app/*"}},
	} {
		err := preflight(t, c)
		require.ErrorContains(t, err, want)
		require.Equal(t, activities.Refused, activities.TypeOf(err), err)
		require.NotContains(t, err.Error(), server.Address())
	}
	d := &database{TB: t, server: server}
	d.open(etcd.Database{Endpoints: at, User: "unwind", Password: secret("right")})
	s := d.txn(`{"compare": [{"key": "/app/a", "value": "1"}], "put": [{"key": "/app/c", "value": "3"}], "delete": [{"prefix": "/app/b"}]}`)
	require.Equal(t, "main: 1 key added, 1 removed", s.plan().Summary)
	s.apply()
	s.sees(activities.AsLeft)
	s.undo(activities.Restored)
	require.NoError(t, s.action().Release(ctx, s.entry))
	_, problems, err := d.world.Records.Records(ctx)
	require.NoError(t, err)
	require.Empty(t, problems)
	_, err = d.txn(`{"put": [{"key": "other", "value": "x"}]}`).planned()
	require.ErrorContains(t, err, "the worker's user lacks a permission for one of the keys")
	require.Equal(t, activities.Refused, activities.TypeOf(err))
}

func (s *step) planned() (activities.Change, error) {
	return s.action().Plan(s.Context(), s.entry, s.with)
}

// A server that cannot be reached is no reason to refuse for good; one whose certificate is unknown
// is not reached either.
func TestServersThatCannotBeReached(t *testing.T) {
	err := preflight(t, etcd.Database{Endpoints: []string{"http://127.0.0.1:1"}})
	require.EqualError(t, err, "database main: the server cannot be reached, or does not answer; it is tried again")
	dir := t.TempDir()
	ca, cert, key := certify(t, dir)
	server := etcdtest.Own(t, "--cert-file="+cert, "--key-file="+key, "--trusted-ca-file="+ca, "--client-cert-auth")
	require.ErrorContains(t, preflight(t, etcd.Database{Endpoints: []string{server.Endpoint()}}), "cannot be reached")
	require.ErrorContains(t, preflight(t, etcd.Database{Endpoints: []string{server.Endpoint()}, TLS: etcd.TLS{CA: ca}}),
		"cannot be reached")
	require.NoError(t,
		preflight(t, etcd.Database{Endpoints: []string{server.Endpoint()}, TLS: etcd.TLS{CA: ca, Cert: cert, Key: key}}))
	require.ErrorContains(t,
		preflight(t, etcd.Database{Endpoints: []string{server.Endpoint()}, TLS: etcd.TLS{CA: filepath.Join(dir, "none")}}),
		"database main: tls: open")
	require.ErrorContains(t, preflight(t, etcd.Database{Endpoints: []string{server.Endpoint()}, TLS: etcd.TLS{CA: key}}),
		"holds no certificate in PEM format")
}

// certify makes a certificate that signs itself, for servers and clients on this machine.
func certify(t *testing.T, dir string) (ca, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), 0o600))
	return cert, cert, key
}

func TestInvalidConfigs(t *testing.T) {
	password := func() (string, error) { return "", nil }
	for want, c := range map[string]etcd.Config{
		"etcd.databases: name at least one database": {},
		`etcd.databases: "a b" must be a name of letters, digits, dashes and underscores`: {
			Databases: map[string]etcd.Database{"a b": {Endpoints: []string{"x"}}}},
		"etcd.databases.main.endpoints: name the members": {
			Databases: map[string]etcd.Database{"main": {}}},
		"etcd.databases.main: user and password: give both, or neither": {
			Databases: map[string]etcd.Database{"main": {Endpoints: []string{"x"}, Password: password}}},
		"etcd.databases.main.tls: cert and key: give both, or neither": {
			Databases: map[string]etcd.Database{"main": {Endpoints: []string{"x"}, TLS: etcd.TLS{Cert: "x"}}}},
		"etcd.databases.main: a pattern of keys is empty; write one such as /app/*, where * ": {
			Databases: map[string]etcd.Database{"main": {Endpoints: []string{"x"}, Deny: []string{""}}}},
	} {
		_, err := etcd.New(c)
		require.ErrorContains(t, err, want)
		require.Equal(t, 1, strings.Count(err.Error(), "etcd.databases"), err)
	}
}

// The record is all that is left of a step that is undone, in the database as on the worker: when
// it is deleted, nothing tells that the step has acted. It is told as never done, unless the
// history knows better. All is as before, and no forward acts any more.
func TestAnUndoneRecordThatIsDeleted(t *testing.T) {
	for _, done := range []bool{false, true} {
		d := newDatabase(t, app)
		before := d.dump()
		s := d.txn(several)
		s.apply()
		s.undo(activities.Restored)
		all, err := d.client.Get(t.Context(), d.namespace+"unwind/", client.WithPrefix(), client.WithKeysOnly())
		require.NoError(t, err)
		var left []string
		for _, kv := range all.Kvs {
			left = append(left, strings.TrimPrefix(string(kv.Key), d.namespace))
		}
		require.Equal(t, []string{"unwind/journal", "unwind/record/" + s.entry.Token}, left)
		d.remove("unwind/record/" + s.entry.Token)
		if done {
			_, err := s.action().Undo(t.Context(), s.entry, activities.Decision{Done: true})
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		} else {
			s.decide(activities.Decision{}, activities.Nothing)
			_, err := s.action().Apply(t.Context(), s.entry, s.with, "")
			require.Equal(t, activities.Fenced, activities.TypeOf(err), err)
		}
		require.Equal(t, before, d.dump())
	}
}

// A server is put back to the files of before a step. Its journal is among the data, and goes back
// with them: a step that the history knows as done is damage, one of which it knows nothing has
// done nothing to these data, and one of before is undone.
func TestDataOfBeforeTheStep(t *testing.T) {
	server := etcdtest.Own(t)
	d := on(t, server, "", app)
	before := d.dump()
	early := d.txn(`{"put": [{"key": "early", "value": "1"}]}`)
	early.apply()
	then := d.dump()
	saved, data := t.TempDir(), filepath.Join(server.Dir, "data")
	server.Kill()
	require.NoError(t, os.CopyFS(saved, os.DirFS(data)))
	require.NoError(t, server.Restart())
	known, unknown := d.txn(several), d.txn(`{"put": [{"key": "a", "value": "x"}]}`)
	known.apply()
	unknown.apply()
	server.Kill()
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.CopyFS(data, os.DirFS(saved)))
	require.NoError(t, server.Restart())
	require.Equal(t, then, d.dump())

	for range 2 {
		_, err := known.action().Undo(t.Context(), known.entry, activities.Decision{Done: true})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		require.ErrorContains(t, err, "were the data put back to an earlier state?")
	}
	unknown.decide(activities.Decision{}, activities.Nothing)
	require.Equal(t, then, d.dump())
	early.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

// What says who needs a record is harmed, or put back to what it was before: the record is not
// released.
func TestHarmToHolders(t *testing.T) {
	for _, document := range []string{"unwind/record/", "unwind/held/"} {
		d := newDatabase(t, app)
		before := d.dump()
		s := d.txn(several)
		s.apply()
		mine := document + s.entry.Token
		earlier := d.read(mine)
		holder := activities.Owner{Workflow: "rollback", Run: "run"}
		held, err := d.world.Records.Hold(t.Context(), s.entry.Token, holder)
		require.NoError(t, err)
		require.True(t, held)
		whole := d.read(mine)
		d.write(mine, earlier)
		require.Error(t, s.action().Release(t.Context(), s.entry), document)
		d.write(mine, whole)
		require.NoError(t, d.world.Records.EndHold(t.Context(), s.entry.Token, holder))
		s.undo(activities.Restored)
		require.Equal(t, before, d.dump())

		s = d.txn(several)
		s.apply()
		_, err = d.world.Records.Hold(t.Context(), s.entry.Token, holder)
		require.NoError(t, err)
		require.NotEmpty(t, d.read("unwind/held/"+s.entry.Token))
		require.NoError(t, d.world.Records.EndHold(t.Context(), s.entry.Token, holder))
		require.Empty(t, d.read("unwind/held/"+s.entry.Token))
		require.NoError(t, s.action().Release(t.Context(), s.entry), "nobody needs it any more")
	}
}
