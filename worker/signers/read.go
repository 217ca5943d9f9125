package signers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
)

// key is a line of the file.
type key struct {
	public        ssh.PublicKey
	persons       []string // the names of one person
	otherwise     bool     // it may sign only for other purposes
	after, before time.Time
	revoked       bool
	line          int
}

// check says why a signature of the key proves nothing now.
func (k key) check(who string, now time.Time) error {
	switch {
	case k.revoked:
		return errors.New("is revoked")
	case k.otherwise:
		return fmt.Errorf("may not sign decisions: its namespaces do not name %s", activities.SignatureNamespace)
	case !k.after.IsZero() && now.Before(k.after):
		return fmt.Errorf("does not count before %s", k.after.Format(time.RFC3339))
	case !k.before.IsZero() && !now.Before(k.before):
		return fmt.Errorf("has expired: it counted until %s", k.before.Format(time.RFC3339))
	case !slices.Contains(k.persons, who):
		return fmt.Errorf("is not that of %q, but of %s: sign as %s, with --as", who, strings.Join(k.persons, ", "),
			k.persons[0])
	}
	return nil
}

// read reads both files.
func (s *Signers) read() ([]key, error) {
	src, err := os.ReadFile(s.file)
	if err != nil {
		return nil, err
	}
	var keys []key
	var problems []error
	for number, line := range lines(src) {
		k, err := readKey(line)
		k.line = number
		if err == nil {
			err = checkPerson(keys, k)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", s.file, number, err))
			continue
		}
		keys = append(keys, k)
	}
	if s.revoked != "" {
		problems = append(problems, s.revoke(keys))
	}
	return keys, errors.Join(problems...)
}

// lines yields the lines that are neither empty nor comments, with their numbers.
func lines(src []byte) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(string(src)) {
			number++
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !yield(number, line) {
				return
			}
		}
	}
}

// kinds are the types of keys whose signatures count. Those of ssh-rsa do by SHA-2 alone.
var kinds = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256}

// readKey reads a line: principals, options, a public key.
func readKey(line string) (k key, err error) {
	principals, rest, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	if strings.ContainsAny(principals, `*?!"'`) {
		return k, fmt.Errorf("%q: a person is named as it is, without patterns and quotes: with a pattern, one key could "+
			"decide as several persons", principals)
	}
	public, _, options, more, err := ssh.ParseAuthorizedKey([]byte(rest))
	switch {
	case err != nil:
		return k, fmt.Errorf("%q has no public key that can be read (%w); write PRINCIPALS [OPTIONS] KEYTYPE KEY, as in "+
			"ann@example.com ssh-ed25519 KEY", principals, err)
	case len(more) > 0:
		return k, errors.New("a line has one key")
	}
	if _, isCertificate := public.(*ssh.Certificate); isCertificate {
		return k, errors.New("it is a certificate, and only keys are read: write the key of each person")
	}
	if !slices.Contains(kinds, public.Type()) {
		return k, fmt.Errorf("%q has a key of type %s, whose signatures prove nothing; make one with ssh-keygen -t ed25519",
			principals, public.Type())
	}
	k.public, k.persons = public, strings.Split(principals, ",")
	for _, name := range k.persons {
		if !activities.IsSamePerson(name, k.persons[0]) || strings.TrimSpace(name) == "" {
			return k, fmt.Errorf("%q are not the names of one person: what stands before an @ names a person, and a key "+
				"belongs to one", principals)
		}
	}
	for _, option := range options {
		if err := k.take(option); err != nil {
			return k, err
		}
	}
	return k, nil
}

// take reads an option of a line.
func (k *key) take(option string) (err error) {
	name, value, _ := strings.Cut(option, "=")
	value = strings.Trim(value, `"`)
	switch strings.ToLower(name) {
	case "namespaces":
		if strings.ContainsAny(value, "*?!") {
			return fmt.Errorf("namespaces: %q: write them out, without patterns, as in %s", value,
				activities.SignatureNamespace)
		}
		k.otherwise = !slices.Contains(strings.Split(value, ","), activities.SignatureNamespace)
	case "valid-after":
		k.after, err = readTime(name, value)
	case "valid-before":
		k.before, err = readTime(name, value)
	case "cert-authority":
		return errors.New("cert-authority: certificates are not read: write the key of each person")
	default:
		return fmt.Errorf("option %q is not known: namespaces, valid-after and valid-before are", name)
	}
	return err
}

// readTime reads a time as ssh-keygen does: in the worker's time zone, unless a Z says UTC.
func readTime(option, value string) (time.Time, error) {
	digits, zone := value, time.Local //nolint:gosmopolitan // so does ssh-keygen
	if z := strings.TrimSuffix(strings.TrimSuffix(value, "Z"), "z"); z != value {
		digits, zone = z, time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if t, err := time.ParseInLocation(layout, digits, zone); err == nil && len(digits) == len(layout) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: %q is no time; write YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with a Z for UTC",
		option, value)
}

// checkPerson refuses a key that stands in the file twice: which line counts would be a matter of
// their order, and two persons with one key could decide as each other.
func checkPerson(keys []key, k key) error {
	for _, other := range keys {
		if bytes.Equal(other.public.Marshal(), k.public.Marshal()) {
			return fmt.Errorf("line %d has this key too; write it once, with all names of its person", other.line)
		}
	}
	return nil
}

// revoke marks the keys that are in the file of the revoked ones.
func (s *Signers) revoke(keys []key) error {
	src, err := os.ReadFile(s.revoked)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(src, []byte("SSHKRL\n\x00")) {
		return fmt.Errorf("%s: a binary list of revoked keys is not read; write their public keys, one a line", s.revoked)
	}
	var problems []error
	for number, line := range lines(src) {
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: it is no public key (%w); write one, as in ssh-ed25519 KEY",
				s.revoked, number, err))
			continue
		}
		for i := range keys {
			if bytes.Equal(keys[i].public.Marshal(), public.Marshal()) {
				keys[i].revoked = true
			}
		}
	}
	return errors.Join(problems...)
}
