package signers

import (
	"crypto/dsa" //nolint:staticcheck // to show that it does not count
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// person has a key, and signs with it.
type person struct {
	signer ssh.Signer
	line   string // its public key
}

func newPerson(t *testing.T) person {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromSigner(private)
	require.NoError(t, err)
	return person{signer, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}
}

func (p person) sign(t *testing.T, s activities.Statement) string {
	return p.signAs(t, s, activities.SignatureNamespace)
}

func (p person) signAs(t *testing.T, s activities.Statement, namespace string) string {
	sig, err := sshsig.Sign(strings.NewReader(s.Text()), p.signer, sshsig.HashSHA512, namespace)
	require.NoError(t, err)
	return string(sshsig.Armor(sig))
}

// statement is an approval by ann.
func statement() activities.Statement {
	return activities.Statement{
		Task: "release", Step: "publish", Action: "file.write", Token: activities.NewToken("run", "publish", 1),
		Opening: activities.DigestOf([]byte("opening")), Change: activities.DigestOf([]byte("change")),
		Undo: activities.DigestOf([]byte("undo")), Verdict: activities.Approve, Who: "ann",
		At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Why: "tested",
	}
}

// write writes a file of the test, and returns its name.
func write(t *testing.T, name, content string) string {
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func open(t *testing.T, file string) *Signers {
	s, err := Open(write(t, "allowed_signers", file), "")
	require.NoError(t, err)
	s.now = func() time.Time { return time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC) }
	return s
}

func TestAKeyProvesItsPersonWhileItCounts(t *testing.T) {
	ann, bob := newPerson(t), newPerson(t)
	for name, c := range map[string]struct{ file, refusal string }{
		"a line":                 {"ann " + ann.line, ""},
		"with comments":          {"# who may decide\n\n  ann\t" + ann.line + " of her laptop", ""},
		"several names":          {"ann@example.com,ann " + ann.line, ""},
		"for decisions":          {"ann namespaces=\"git," + activities.SignatureNamespace + "\" " + ann.line, ""},
		"for another purpose":    {"ann namespaces=\"git\" " + ann.line, "its namespaces do not name"},
		"valid":                  {"ann valid-after=\"20261130115900Z\",valid-before=\"20261130120002Z\" " + ann.line, ""},
		"not yet valid":          {"ann valid-after=\"20261201Z\" " + ann.line, "does not count before 2026-12-01"},
		"expired":                {"ann valid-before=\"202611301200Z\" " + ann.line, "has expired: it counted until 2026-11-30"},
		"expired at this moment": {"ann valid-before=\"20261130120001Z\" " + ann.line, "has expired"},
		"another's key":          {"ann " + bob.line, "is not one of the worker's signers"},
		"another's name":         {"bob " + ann.line, `is not that of "ann", but of bob: sign as bob, with --as`},
		"another's longer name":  {"ann@example.com " + ann.line, "sign as ann@example.com, with --as"},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := open(t, c.file).Verify(statement(), ann.sign(t, statement()))
			if c.refusal == "" {
				require.NoError(t, err)
				require.Equal(t, ssh.FingerprintSHA256(ann.signer.PublicKey()), key)
				return
			}
			require.ErrorContains(t, err, c.refusal)
			require.Empty(t, key)
		})
	}
}

func TestAFileWithAMistakeIsRefusedAtItsLine(t *testing.T) {
	ann := newPerson(t)
	for written, refusal := range map[string]string{
		"":                                      "nobody is in it",
		"# nobody\n":                            "nobody is in it",
		"ann":                                   "has no public key that can be read",
		"\n\nann ssh-ed25519 AAAA":              "allowed_signers:3: \"ann\" has no public key that can be read",
		"*@example.com " + ann.line:             "without patterns",
		"ann,bob " + ann.line:                   "are not the names of one person",
		"ann, " + ann.line:                      "are not the names of one person",
		"ann cert-authority " + ann.line:        "certificates are not read",
		"ann namespaces=\"*\" " + ann.line:      "write them out",
		"ann no-touch-required " + ann.line:     `option "no-touch-required" is not known`,
		"ann valid-before=\"2027\" " + ann.line: `"2027" is no time`,
		"ann " + ann.line + "\nbob " + ann.line: "allowed_signers:2: line 1 has this key too",
	} {
		_, err := Open(write(t, "allowed_signers", written), "")
		require.ErrorContains(t, err, refusal, written)
	}
	dsa, err := ssh.NewPublicKey(&dsaKey)
	require.NoError(t, err)
	_, err = Open(write(t, "allowed_signers", "# old\nann "+string(ssh.MarshalAuthorizedKey(dsa))), "")
	require.ErrorContains(t, err, `allowed_signers:2: "ann" has a key of type ssh-dss, whose signatures prove nothing; `+
		"make one with ssh-keygen -t ed25519")
	_, err = Open(filepath.Join(t.TempDir(), "none"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestARevokedKeyAndABrokenFileStopCountingAtOnce(t *testing.T) {
	ann, bob := newPerson(t), newPerson(t)
	file, revoked := write(t, "allowed_signers", "ann "+ann.line+"\nbob "+bob.line), write(t, "revoked", "")
	s, err := Open(file, revoked)
	require.NoError(t, err)
	signature := ann.sign(t, statement())
	_, err = s.Verify(statement(), signature)
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(revoked, []byte("# lost in a train\n"+ann.line+"\n"), 0o600))
	_, err = s.Verify(statement(), signature)
	require.ErrorContains(t, err, "is revoked")

	require.NoError(t, os.WriteFile(revoked, []byte("ssh-ed25519 nonsense"), 0o600))
	_, err = s.Verify(statement(), signature)
	require.ErrorContains(t, err, "nobody's signature counts until the worker's files of signers are right")
	require.ErrorContains(t, err, "revoked:1: it is no public key")
	require.NoError(t, os.WriteFile(revoked, []byte("SSHKRL\n\x00..."), 0o600))
	_, err = s.Verify(statement(), signature)
	require.ErrorContains(t, err, "a binary list of revoked keys is not read")
	require.NoError(t, os.Remove(revoked))
	_, err = s.Verify(statement(), signature)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(revoked, nil, 0o600))
	require.NoError(t, os.WriteFile(file, []byte("bob "+bob.line), 0o600))
	_, err = s.Verify(statement(), signature)
	require.ErrorContains(t, err, "is not one of the worker's signers")
}

// TestNoMutatedDecisionIsAccepted takes two valid decisions, and changes one thing of one.
func TestNoMutatedDecisionIsAccepted(t *testing.T) {
	ann, bob := newPerson(t), newPerson(t)
	s := open(t, "ann "+ann.line+"\nbob "+bob.line)
	mine, other := statement(), statement()
	other.Step, other.Who, other.Verdict = "tidy", "bob", activities.Reject
	mySignature, otherSignature := ann.sign(t, mine), bob.sign(t, other)
	for _, c := range []struct {
		about     activities.Statement
		signature string
	}{{mine, mySignature}, {other, otherSignature}} {
		_, err := s.Verify(c.about, c.signature)
		require.NoError(t, err, "the decisions are valid as they are")
	}
	tried := 0
	refuse := func(what string, about activities.Statement, signature string) {
		tried++
		_, err := s.Verify(about, signature)
		require.Error(t, err, what)
	}

	refuse("the other's signature", mine, otherSignature)
	refuse("the same for the other step", other, mySignature)
	refuse("no signature", mine, "")
	refuse("two signatures", mine, mySignature+mySignature)
	refuse("another purpose", mine, ann.signAs(t, mine, "git"))
	refuse("an older version", mine, ann.signAs(t, mine, "unwind-approval@v0"))
	refuse("another's key, who counts", mine, bob.sign(t, mine))
	refuse("a key that nobody knows", mine, newPerson(t).sign(t, mine))
	for what, file := range map[string]string{
		"expired": `ann valid-before="20261130115959Z" ` + ann.line, "not yet valid": `ann valid-after="20261201Z" ` + ann.line,
		"for another purpose": `ann namespaces="git" ` + ann.line, "taken out": "bob " + bob.line,
	} {
		tried++
		_, err := open(t, file).Verify(mine, mySignature)
		require.Error(t, err, what)
	}
	withRevoked, err := Open(write(t, "allowed_signers", "ann "+ann.line), write(t, "revoked", ann.line))
	require.NoError(t, err)
	_, err = withRevoked.Verify(mine, mySignature)
	require.ErrorContains(t, err, "is revoked")
	fields := map[string]func(*activities.Statement) *string{
		"task": func(s *activities.Statement) *string { return &s.Task }, "step": func(s *activities.Statement) *string { return &s.Step },
		"action":  func(s *activities.Statement) *string { return &s.Action },
		"token":   func(s *activities.Statement) *string { return &s.Token },
		"opening": func(s *activities.Statement) *string { return (*string)(&s.Opening) },
		"change":  func(s *activities.Statement) *string { return (*string)(&s.Change) },
		"undo":    func(s *activities.Statement) *string { return (*string)(&s.Undo) },
		"verdict": func(s *activities.Statement) *string { return &s.Verdict },
		"who":     func(s *activities.Statement) *string { return &s.Who }, "why": func(s *activities.Statement) *string { return &s.Why },
	}
	require.Len(t, fields, reflect.TypeFor[activities.Statement]().NumField()-1, "each text is changed; the time is below")
	for name, field := range fields {
		value := *field(&mine)
		for i := range len(value) {
			for _, b := range []byte{value[i] ^ 1, value[i] ^ 0x20, '\n', '"', 0} {
				if b != value[i] {
					about := mine
					*field(&about) = value[:i] + string(b) + value[i+1:]
					refuse(name, about, mySignature)
				}
			}
			about := mine
			*field(&about) = value[:i] + value[i+1:]
			refuse(name+" shorter", about, mySignature)
		}
		about := mine
		*field(&about) = value + " "
		refuse(name+" longer", about, mySignature)
		*field(&about) = ""
		refuse(name+" empty", about, mySignature)
		*field(&about) = *field(&other)
		if *field(&other) != value {
			refuse(name+" of the other", about, mySignature)
		}
	}
	for _, by := range []time.Duration{1, -1, time.Second, -time.Hour} {
		about := mine
		about.At = about.At.Add(by)
		refuse("time", about, mySignature)
	}
	injected := mine
	injected.Why, injected.Who = "", "ann\"\nat: \"2026-11-30T12:00:00Z\"\nwhy: \"tested"
	refuse("a line in a name", injected, mySignature)

	block, _ := pem.Decode([]byte(mySignature))
	armored := func(raw []byte) string { return string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: raw})) }
	for i := range block.Bytes {
		for change := 1; change < 256; change += 6 {
			raw := slices.Clone(block.Bytes)
			raw[i] ^= byte(change)
			refuse(fmt.Sprintf("byte %d of the signature", i), mine, armored(raw))
		}
		refuse("a shorter signature", mine, armored(block.Bytes[:i]))
		refuse("a signature without a byte", mine, armored(slices.Delete(slices.Clone(block.Bytes), i, i+1)))
		refuse("a signature with one more", mine, armored(slices.Insert(slices.Clone(block.Bytes), i, 0)))
	}
	refuse("a longer signature", mine, armored(append(slices.Clone(block.Bytes), 0)))
	sig, err := sshsig.Unarmor([]byte(mySignature))
	require.NoError(t, err)
	for _, other := range []person{bob, newPerson(t)} {
		claimed := *sig
		claimed.PublicKey = other.signer.PublicKey()
		refuse("the key of another in the signature", mine, string(sshsig.Armor(&claimed)))
	}
	sig.Signature.Rest = []byte{1, 0, 0, 0, 1}
	refuse("what only a hardware key adds", mine, string(sshsig.Armor(sig)))
	require.GreaterOrEqual(t, tried, 10_000)
}

// dsaKey is a key of a kind that OpenSSH no longer makes: p has the size of one, and need not be a prime.
var dsaKey = dsa.PublicKey{Parameters: dsa.Parameters{P: new(big.Int).SetBit(big.NewInt(1), 1023, 1),
	Q: new(big.Int).SetBit(big.NewInt(1), 159, 1), G: big.NewInt(4)}, Y: big.NewInt(16)}

func TestAnRSAKeyCountsBySHA2Alone(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromSigner(private)
	require.NoError(t, err)
	s := open(t, "ann "+string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	for algorithm, refusal := range map[string]string{
		ssh.KeyAlgoRSASHA512: "", ssh.KeyAlgoRSASHA256: "",
		ssh.KeyAlgoRSA: `its signature cannot be read: invalid signature format "ssh-rsa": expected "rsa-sha2-256" or`,
	} {
		sig, err := sshsig.Sign(strings.NewReader(statement().Text()), hashed{signer.(ssh.AlgorithmSigner), algorithm},
			sshsig.HashSHA512, activities.SignatureNamespace)
		require.NoError(t, err)
		require.Equal(t, algorithm, sig.Signature.Format)
		_, err = s.Verify(statement(), string(sshsig.Armor(sig)))
		if refusal == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, refusal)
	}
}

// hashed signs by one algorithm, whichever is asked for.
type hashed struct {
	ssh.AlgorithmSigner

	algorithm string
}

func (h hashed) SignWithAlgorithm(from io.Reader, data []byte, _ string) (*ssh.Signature, error) {
	return h.AlgorithmSigner.SignWithAlgorithm(from, data, h.algorithm)
}

func TestSSHKeygenSignsAndVerifiesTheSame(t *testing.T) {
	testrun.NeedProgram(t, "ssh-keygen", "install openssh-client")
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run(kind, func(t *testing.T) {
			folder := t.TempDir()
			keygen := func(stdin string, args ...string) string {
				c := exec.Command("ssh-keygen", args...)
				c.Dir, c.Stdin = folder, strings.NewReader(stdin)
				out, err := c.CombinedOutput()
				require.NoError(t, err, string(out))
				return string(out)
			}
			keygen("", "-q", "-t", kind, "-N", "", "-f", "key")
			public, err := os.ReadFile(filepath.Join(folder, "key.pub"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "allowed_signers"), []byte("ann "+string(public)), 0o600))
			s, err := Open(filepath.Join(folder, "allowed_signers"), "")
			require.NoError(t, err)

			require.NoError(t, os.WriteFile(filepath.Join(folder, "decision"), []byte(statement().Text()), 0o600))
			keygen("", "-q", "-Y", "sign", "-n", activities.SignatureNamespace, "-f", "key", "decision")
			signature, err := os.ReadFile(filepath.Join(folder, "decision.sig"))
			require.NoError(t, err)
			fingerprint, err := s.Verify(statement(), string(signature))
			require.NoError(t, err)
			require.Contains(t, keygen("", "-l", "-f", "key.pub"), fingerprint)

			raw, err := os.ReadFile(filepath.Join(folder, "key"))
			require.NoError(t, err)
			signer, err := ssh.ParsePrivateKey(raw)
			require.NoError(t, err)
			ours := person{signer: signer}.sign(t, statement())
			require.NoError(t, os.WriteFile(filepath.Join(folder, "ours.sig"), []byte(ours), 0o600))
			keygen(statement().Text(), "-Y", "verify", "-f", "allowed_signers", "-I", "ann", "-n",
				activities.SignatureNamespace, "-s", "ours.sig")
		})
	}
}

// TestAHardwareKeyCountsIfItWasTouched signs as a hardware token does: over a hash of the application,
// flags, a counter and a hash of the text.
func TestAHardwareKeyCountsIfItWasTouched(t *testing.T) {
	ed, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := ec.PublicKey.Bytes()
	require.NoError(t, err)
	for name, token := range map[string]token{
		ssh.KeyAlgoSKED25519: {marshalKey(t, ssh.Marshal(struct{ Name, Key, Application string }{
			ssh.KeyAlgoSKED25519, string(ed), "ssh:"})), private},
		ssh.KeyAlgoSKECDSA256: {marshalKey(t, ssh.Marshal(struct{ Name, Curve, Key, Application string }{
			ssh.KeyAlgoSKECDSA256, "nistp256", string(point), "ssh:"})), ec},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "ann "+string(ssh.MarshalAuthorizedKey(token.public)))
			for flags, isTouched := range map[byte]bool{0: false, 1: true, 4: false, 5: true} {
				_, err := s.Verify(statement(), token.sign(t, statement(), flags))
				if isTouched {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "is not over this decision")
				}
			}
		})
	}
}
