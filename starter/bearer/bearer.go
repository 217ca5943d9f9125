// Package bearer knows persons and programs by the tokens that they bear.
package bearer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/starter/usage"
)

// Person is whoever bears a token.
type Person struct {
	Name string
	Role Role
}

// Role says what a person may do.
type Role string

// The roles: each may do what the one before it may.
const (
	Viewer   Role = "viewer"   // looks
	Approver Role = "approver" // also decides what waits for a person
	Operator Role = "operator" // also begins: cancels, rolls back, redoes, recovers, takes checkpoints
)

// Roles are all roles, the lowest first.
var Roles = []Role{Viewer, Approver, Operator}

// RoleNames is a list of them for people.
func RoleNames() string { return fmt.Sprintf("%s, %s or %s", Viewer, Approver, Operator) }

// MayDecide reports whether the person may decide what waits.
func (p Person) MayDecide() bool { return p.Role == Approver || p.Role == Operator }

// MayOperate reports whether the person may begin something.
func (p Person) MayOperate() bool { return p.Role == Operator }

// Tokens maps tokens to whose they are.
type Tokens map[string]Person

// Digest is how a token is kept and compared.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a token.
func DigestOf(token string) Digest { return sha256.Sum256([]byte(token)) }

// Find finds who bears a token, in a time that reveals nothing of it.
func (t Tokens) Find(borne Digest) (p Person, known bool) {
	for token, whose := range t {
		want := DigestOf(token)
		if subtle.ConstantTimeCompare(borne[:], want[:]) == 1 {
			p, known = whose, true
		}
	}
	return p, known
}

// MinToken is how long a token has to be, in bytes: what can be guessed proves nothing.
const MinToken = 16

// Read reads a file with a line for each token: NAME TOKEN, or NAME TOKEN ROLE. Who has no role is
// an Operator. An empty name of a file is none.
func Read(file string) (Tokens, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, usage.Errorf("--tokens: %w", err)
	}
	t := Tokens{}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 || len(fields) > 3 || len(fields[1]) < MinToken {
			return nil, usage.Errorf(
				"--tokens %s:%d: write NAME TOKEN or NAME TOKEN ROLE, with a token of at least %d characters", file, n, MinToken)
		}
		p := Person{fields[0], Operator}
		if len(fields) == 3 {
			if p.Role = Role(fields[2]); !slices.Contains(Roles, p.Role) {
				return nil, usage.Errorf("--tokens %s:%d: %q is no role: write %s", file, n, fields[2], RoleNames())
			}
		}
		if earlier, taken := t[fields[1]]; taken {
			return nil, usage.Errorf("--tokens %s:%d: the token is already that of %s", file, n, earlier.Name)
		}
		t[fields[1]] = p
	}
	if err := lines.Err(); err != nil {
		return nil, usage.Errorf("--tokens %s: %w", file, err)
	}
	if len(t) == 0 {
		return nil, usage.Errorf("--tokens %s: it names no token; write NAME TOKEN, a line for each", file)
	}
	return t, nil
}
