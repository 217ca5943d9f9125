package activities

import (
	"fmt"
	"strings"
	"time"
)

// SignatureNamespace is that of the SSH signatures on statements, as in ssh-keygen -Y sign -n. It
// names the version of their text.
const SignatureNamespace = "unwind-approval@v1"

// Statement is what a person signs who decides about a step: one opening of its gate, or one park.
type Statement struct {
	Task   string `json:"task"` // the id of the workflow that is told
	Step   string `json:"step"`
	Action string `json:"action"`
	Token  string `json:"token"`
	// Opening identifies the opening of the gate, or the park.
	Opening Digest `json:"opening"`
	// Change is the digest of what is decided about: of the change at a gate, of the drift where an
	// undo is parked, of the new parameters where a step is.
	Change Digest `json:"change,omitempty"`
	// Undo is the digest of how the change would be undone: see Change.UndoDigest.
	Undo    Digest    `json:"undo,omitempty"`
	Verdict string    `json:"verdict"` // approve, reject, or what resolves a park
	Who     string    `json:"who"`
	At      time.Time `json:"at"`
	Why     string    `json:"why,omitempty"`
}

// The verdicts of a statement about a gate.
const (
	Approve = "approve"
	Reject  = "reject"
)

// Text is what the signature is over. Each value is quoted, so that none can pass for another line.
func (s Statement) Text() string {
	var b strings.Builder
	b.WriteString("A decision about a step of an agent's task\n")
	for _, line := range []struct{ name, value string }{
		{"task", s.Task}, {"step", s.Step}, {"action", s.Action}, {"token", s.Token}, {"opening", string(s.Opening)},
		{"change", string(s.Change)}, {"undo", string(s.Undo)}, {"verdict", s.Verdict}, {"who", s.Who},
		{"at", s.At.UTC().Format(time.RFC3339Nano)}, {"why", s.Why},
	} {
		fmt.Fprintf(&b, "%s: %q\n", line.name, line.value)
	}
	return b.String()
}

// By is who has decided.
func (s Statement) By() string { return s.Who }

// Signable is what a person signs. The texts of two kinds are never the same, so that a signature of one
// counts for no other.
type Signable interface {
	Text() string
	// By is the person.
	By() string
}

// Signers know whose signatures count: the approvals of a worker's config.
type Signers interface {
	// Verify returns the fingerprint of the key with which the person that a text names has signed it.
	// The error says why the signature proves nothing.
	Verify(about Signable, signature string) (key string, err error)
}

// MaxSignature is how long a signature may be, in bytes: one by an RSA key of 16,384 bits has 6 KB. It
// is checked before a signature goes anywhere: what is too long for the history would end a task.
const MaxSignature = 8 << 10

// Signing is how a decision about a park was signed, for the worker that carries it out.
type Signing struct {
	Task      string    `json:"task"`
	Opening   Digest    `json:"opening"`
	Change    Digest    `json:"change,omitempty"`
	At        time.Time `json:"at"`
	Signature string    `json:"signature"`
}

// UndoDigest identifies how the change would be undone, and what that would not bring back.
func (c Change) UndoDigest() Digest {
	parts := [][]byte{[]byte(c.Strategy), []byte(c.Undo)}
	for _, loss := range c.Losses {
		parts = append(parts, []byte(loss))
	}
	return DigestOf(parts...)
}

// Signer names who has decided, and the key that proves it; without one the name is a claim.
func Signer(who, key string) string {
	if key == "" {
		return who
	}
	return fmt.Sprintf("%s (key %s)", who, key)
}
