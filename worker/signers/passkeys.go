package signers

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/passkey"
)

// OpenForPasskeys is Open for a page on which the first passkey may be made: nobody need be in the file yet.
func OpenForPasskeys(file string) (*Signers, error) {
	s := &Signers{file: file, now: time.Now}
	_, err := s.read()
	return s, err
}

// Passkey is one in the file.
type Passkey struct {
	// Person is whose it is, by the first name in its line.
	Person string
	// Refused says why it does not count now; nil if it does.
	Refused error
}

// Passkeys are all in the file, in its order.
func (s *Signers) Passkeys() (all []Passkey, err error) {
	keys, err := s.read()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if _, is := passkey.Of(k.public); !is {
			continue
		}
		p := Passkey{Person: k.persons[0]}
		if err := k.check(p.Person, s.now()); err != nil {
			p.Refused = fmt.Errorf("key %s %w", ssh.FingerprintSHA256(k.public), err)
		}
		all = append(all, p)
	}
	return all, nil
}

// Sign makes a signature of what a browser answers. An assertion does not say whose it is: the key in
// the file that has made it does. The error says why the signature would prove nothing.
func (s *Signers) Sign(about activities.Statement, a passkey.Assertion) (signature string, err error) {
	keys, err := s.read()
	if err != nil {
		return "", err
	}
	for _, k := range keys {
		public, is := passkey.Of(k.public)
		if !is || !a.IsBy(public) {
			continue
		}
		if signature, err = a.Armor(public); err == nil {
			_, err = s.Verify(about, signature)
		}
		if err != nil {
			return "", err
		}
		return signature, nil
	}
	return "", errors.New("no passkey in this page's file of signers has signed this: a new one counts once its line " +
		"is there")
}

// LineOf is the line with which a passkey comes into the file.
func LineOf(person string, k passkey.Key) (string, error) {
	isOdd := func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) } // as what turns the order of letters round
	if person == "" || strings.ContainsFunc(person, isOdd) || person[0] == '#' {
		return "", fmt.Errorf("%q is no name for a line of signers: write one word, as in ann@example.com", person)
	}
	line := person + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
	_, err := readKey(line)
	return line, err
}
