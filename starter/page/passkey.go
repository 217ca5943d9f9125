package page

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/passkey"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/signers"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// passkeysOf are the names under which somebody can sign here: one's own, and on a page where nobody
// signs in those of all who have a passkey. Of who has none that counts, lapsed says why.
func (s *Server) passkeysOf(p bearer.Person) (names, lapsed []string, err error) {
	all, err := s.Signers.Passkeys()
	if err != nil {
		return nil, nil, err
	}
	if s.Anybody == nil {
		all = slices.DeleteFunc(all, func(k signers.Passkey) bool { return !activities.IsSamePerson(k.Person, p.Name) })
	}
	for _, k := range all {
		if k.Refused == nil {
			names = append(names, k.Person)
		}
	}
	for _, k := range all {
		if !slices.Contains(names, k.Person) {
			lapsed = append(lapsed, fmt.Sprintf("the passkey of %s does not count: %v", k.Person, k.Refused))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), lapsed, nil
}

// challenge answers what the browser is to sign of a decision, and when that was.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	w.Header().Set("Content-Type", "application/json")
	d := readDecision(r, p)
	d.at = time.Now().UTC().Truncate(time.Second)
	about, err := s.statement(r.Context(), p, &d)
	if err != nil {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(map[string]string{"problem": err.Error()})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"at": d.at.Format(time.RFC3339),
		"challenge": base64.RawURLEncoding.EncodeToString(passkey.Challenge(about.Text()))})
}

// addSignature adds to a decision what the browser has signed of it.
func (s *Server) addSignature(r *http.Request, p bearer.Person, d *decision) (err error) {
	if s.Signers == nil {
		return usage.Errorf("nobody signs here: `starter serve` was started without --signers")
	}
	if d.at, err = time.Parse(time.RFC3339, r.PostFormValue("at")); err != nil {
		return usage.Errorf("at: %w; load the page again", err)
	}
	var a passkey.Assertion
	if err := json.Unmarshal([]byte(r.PostFormValue("assertion")), &a); err != nil {
		return usage.Errorf("what the browser has signed cannot be read (%w); load the page again", err)
	}
	about, err := s.statement(r.Context(), p, d)
	if err == nil {
		d.signature, err = s.Signers.Sign(about, a)
	}
	return err
}

// statement is what is signed of a decision about what waits now.
func (s *Server) statement(ctx context.Context, p bearer.Person, d *decision) (none activities.Statement, err error) {
	if err := d.check(); err != nil {
		return none, err
	}
	names, lapsed, err := s.passkeysOf(p)
	switch {
	case err != nil:
		return none, err
	case !slices.Contains(names, d.as):
		why := append([]string{fmt.Sprintf("you cannot sign as %q here", d.as)}, lapsed...)
		return none, usage.Errorf("%s", strings.Join(why, "; "))
	}
	d.who = d.as
	t, err := s.Client.Describe(ctx, d.task)
	if err != nil {
		return none, err
	}
	now, err := s.Client.QueryStep(ctx, t, d.step)
	if err != nil {
		return none, err
	}
	return d.statement(now)
}

// statement is what is signed of the decision, if what was shown still waits.
func (d decision) statement(now protocol.StepNow) (none activities.Statement, err error) {
	r, err := d.ofPark(now)
	if err != nil {
		return none, err
	}
	switch digest := activities.Digest(d.digest); {
	case now.Gate != nil && now.Gate.Digest == digest && d.do == string(protocol.DoEdit):
		return now.Gate.StatementOfEdit(d.task, r), nil
	case now.Gate != nil && now.Gate.Digest == digest:
		if d.do == activities.Approve && now.Gate.Change.UndoDigest() != now.Gate.Undo {
			return none, usage.Errorf("how step %s would be undone is not shown as a whole, so nobody can sign for it: "+
				"reject it, or cancel the task", d.step)
		}
		return now.Gate.Statement(d.task, d.do, d.ofGate()), nil
	case now.Park != nil && now.Park.Digest == digest:
		return now.Park.Statement(d.task, r), nil
	case now.Undo != nil && now.Undo.Digest == digest:
		return now.Undo.Statement(d.task, r.Resolution), nil
	}
	return none, errors.New("something else waits there now, or nothing: load the page again")
}

// passkeyPage is where a person makes a passkey.
type passkeyPage struct {
	// Name is whose it will be, and Asks says that it can be another's: nobody signs in.
	Name string
	Asks bool
	// Line is the one for the file of signers, and Fingerprint that of its key; empty before one is made.
	Line, Fingerprint string
}

func (s *Server) showPasskey(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	s.render(w, r, http.StatusOK, "passkey", view{Title: "A passkey", Person: p,
		Body: passkeyPage{Name: p.Name, Asks: s.Anybody != nil}})
}

// enroll shows the line for a passkey that the browser has made. Whether it counts is decided by who
// keeps the file of signers.
func (s *Server) enroll(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	body := passkeyPage{Name: p.Name, Asks: s.Anybody != nil}
	if body.Asks {
		body.Name = cmp.Or(r.PostFormValue("as"), p.Name)
	}
	v, status := view{Title: "A passkey", Person: p}, http.StatusOK
	encoded, err := base64.RawURLEncoding.DecodeString(r.PostFormValue("key"))
	var k passkey.Key
	if err == nil && len(encoded) == 0 {
		err = errors.New("the browser has made no passkey: this needs a script")
	}
	if err == nil {
		k, err = passkey.New(encoded, r.PostFormValue("host"))
	}
	if err == nil {
		body.Line, err = signers.LineOf(body.Name, k)
	}
	if err == nil {
		body.Fingerprint = ssh.FingerprintSHA256(k)
	} else {
		v.Problem, status, body.Line = err.Error(), http.StatusUnprocessableEntity, ""
	}
	v.Body = body
	s.render(w, r, status, "passkey", v)
}

// addPasskeys adds under which names the person can sign here, where only signed decisions count.
func (s *Server) addPasskeys(b *stepPage, p bearer.Person) {
	if len(b.Sign) == 0 || s.Signers == nil {
		return
	}
	b.Enrolls = true
	var err error
	if b.Passkeys, b.Lapsed, err = s.passkeysOf(p); err != nil {
		b.Unreadable = err.Error()
	}
}
