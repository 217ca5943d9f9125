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

// WithPasskeys are the persons whose passkeys count now, by their first names.
func (s *Signers) WithPasskeys() (persons []string, err error) {
	keys, err := s.read()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if _, is := passkey.Of(k.public); is && k.check(k.persons[0], s.now()) == nil {
			persons = append(persons, k.persons[0])
		}
	}
	return persons, nil
}

// Sign makes a signature of what a browser answers: an assertion does not say whose it is, so each
// passkey of the person is tried. The error says why none has signed.
func (s *Signers) Sign(about activities.Signable, a passkey.Assertion) (signature string, err error) {
	keys, err := s.read()
	if err != nil {
		return "", err
	}
	var refused []error
	for _, k := range keys {
		public, is := passkey.Of(k.public)
		if !is || k.check(about.By(), s.now()) != nil {
			continue
		}
		signature, err := a.Armor(public)
		if err == nil {
			_, err = s.Verify(about, signature)
		}
		if err == nil {
			return signature, nil
		}
		refused = append(refused, err)
	}
	if len(refused) == 0 {
		return "", fmt.Errorf("no passkey of %q is known here", about.By())
	}
	return "", errors.Join(refused...)
}

// LineOf is the line with which a passkey comes into the file.
func LineOf(person string, k passkey.Key) (string, error) {
	if person == "" || strings.ContainsFunc(person, unicode.IsSpace) || person[0] == '#' {
		return "", fmt.Errorf("%q is no name for a line of signers: write one word, as in ann@example.com", person)
	}
	line := person + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
	_, err := readKey(line)
	return line, err
}
