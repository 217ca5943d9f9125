package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/durable"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// contexts keeps what agents have given to their sessions, in a journal in the state folder: a
// token for each session, named by the first run of its chain, with a document for each context,
// named by its digest.
type contexts struct {
	dir         string
	host, queue string
}

func contextsOf(c Config) contexts {
	return contexts{filepath.Join(c.State, "contexts"), c.Host, task.HostQueue(c.Queue, c.Host)}
}

// ownerDoc says whose contexts a token has.
const ownerDoc = "owner"

// content is the document of a context.
type content struct {
	Bytes []byte `json:"bytes"`
}

func (s contexts) token(firstRunID string) (*journal.Token, error) {
	j, err := journal.Open(s.dir)
	if err != nil {
		return nil, err
	}
	return j.Token(activities.NewToken(firstRunID, "context", 1))
}

// maxKept is how many contexts of a session a host has: as many as the session answers requests.
const maxKept = 10_000

// Keep makes a context durable. It comes by a query, so no session has admitted it yet.
func (s contexts) Keep(given protocol.GivenContext) (protocol.Context, error) {
	var none protocol.Context
	if given.WorkflowID == "" || given.FirstRunID == "" || len(given.Content) == 0 {
		return none, activities.Errorf(activities.Refused, "a context needs its session, and content")
	}
	t, err := s.token(given.FirstRunID)
	if err != nil {
		return none, err
	}
	if _, err := t.Create(ownerDoc, &activities.Owner{Workflow: given.WorkflowID, Run: given.FirstRunID}); err != nil {
		return none, err
	}
	kept, err := os.ReadDir(t.Dir())
	if err != nil {
		return none, err
	}
	if len(kept) > maxKept {
		return none,
			activities.Errorf(activities.Refused, "host %s keeps at most %d contexts of a session: it takes no more", s.host,
				maxKept)
	}
	sum := sha256.Sum256(given.Content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if _, err := t.Create(documentOf(activities.Digest(digest)), &content{given.Content}); err != nil {
		return none, err
	}
	return protocol.Context{Digest: activities.Digest(digest), Size: len(given.Content), Host: s.host, Queue: s.queue}, nil
}

// Read returns a context that is kept.
func (s contexts) Read(r protocol.ContextRequest) (protocol.GivenContext, error) {
	given := protocol.GivenContext{ContextRequest: r}
	t, err := s.token(r.FirstRunID)
	if err != nil {
		return given, err
	}
	name, err := checkedDocument(r.Digest)
	if err != nil {
		return given, err
	}
	var read content
	found, err := t.Read(name, &read)
	if err == nil && !found {
		err = activities.Errorf(activities.Refused,
			"host %s has no context %s of session %s: it was released after the session's end, or never given", s.host, r.Digest,
			r.WorkflowID)
	}
	given.Content = read.Bytes
	return given, err
}

// forget removes contexts of a session.
func (s contexts) forget(r protocol.ContextRequest) error {
	t, err := s.token(r.FirstRunID)
	if err != nil {
		return err
	}
	for _, d := range r.Forget {
		name, err := checkedDocument(d)
		if err != nil {
			return err
		}
		if err := t.Drop(name); err != nil {
			return err
		}
	}
	return nil
}

// checkedDocument names the document of a context, and refuses what is no digest of one.
func checkedDocument(d activities.Digest) (string, error) {
	name := documentOf(d)
	if strings.ContainsAny(name, "/.") || name == ownerDoc || name == "" {
		return "", activities.Errorf(activities.Refused, "%q is no digest of a context", d)
	}
	return name, nil
}

func documentOf(d activities.Digest) string { return strings.TrimPrefix(string(d), "sha256:") }

// confirmContext reports whether a context is stored on this host, and removes those that its
// session knows no more.
func (b builtin) confirmContext(_ context.Context, r protocol.ContextRequest) error {
	s := contextsOf(b.config)
	_, err := s.Read(r)
	if err == nil {
		err = s.forget(r)
	}
	if kind := activities.TypeOf(err); kind == activities.Refused || kind == activities.DamagedRecord {
		return nonRetryable(err)
	}
	return err
}

// retainContexts removes the contexts of sessions that are over.
func (r *round) retainContexts(ctx context.Context) error {
	s := contextsOf(r.config)
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	j, err := journal.Open(s.dir)
	if err != nil {
		r.problemf("contexts: %v", err)
		return nil
	}
	tokens, err := j.Tokens()
	if err != nil {
		r.problemf("contexts: %v", err)
	}
	for _, token := range tokens {
		t, err := j.Token(token)
		if err == nil {
			err = r.retainContext(ctx, t)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.problemf("contexts, token %s: %v", token, err)
		}
	}
	return nil
}

func (r *round) retainContext(ctx context.Context, t *journal.Token) error {
	var owner activities.Owner
	found, err := t.Read(ownerDoc, &owner)
	if err != nil || !found { // it is being made
		return err
	}
	s, err := r.stateOf(ctx, owner)
	isGone := s.gone || s.doubtful && s.FirstRunID != owner.Run
	if err != nil || !isGone && (s.needed || r.busy[s.Task]) {
		return err
	}
	if err := os.RemoveAll(t.Dir()); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(t.Dir()))
}
