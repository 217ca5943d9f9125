package signers

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/passkey"
	"github.com/seed-62bf7108/unwind/testrun"
)

// authenticator is a passkey with what is inside it. What a browser would not say, it signs as well.
type authenticator struct {
	key    passkey.Key
	inside *ecdsa.PrivateKey
}

func newAuthenticator(t *testing.T, host string) authenticator {
	inside, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKIXPublicKey(&inside.PublicKey)
	require.NoError(t, err)
	key, err := passkey.New(encoded, host)
	require.NoError(t, err)
	return authenticator{key, inside}
}

func (a authenticator) line(t *testing.T, person string) string {
	line, err := LineOf(person, a.key)
	require.NoError(t, err)
	return line
}

// said is what a browser and an authenticator say when they sign.
type said struct {
	kind, origin, more string
	host               string
	flags              byte
	extensions         string
	challenge          []byte
}

// saying is what they say as it should be; change changes that.
func saying(about activities.Statement, change func(*said)) said {
	s := said{kind: "webauthn.get", origin: "https://unwind.example.com", more: `,"crossOrigin":false}`,
		host: "unwind.example.com", flags: 0b11101, challenge: passkey.Challenge(about.Text())}
	if change != nil {
		change(&s)
	}
	return s
}

func (a authenticator) assert(t *testing.T, s said) passkey.Assertion {
	client := fmt.Sprintf(`{"type":%q,"challenge":%q,"origin":%q%s`, s.kind,
		base64.RawURLEncoding.EncodeToString(s.challenge), s.origin, s.more)
	host, signed := sha256.Sum256([]byte(s.host)), sha256.Sum256([]byte(client))
	says := append(append(host[:], s.flags, 0, 0, 0, 9), s.extensions...)
	digest := sha256.Sum256(append(slices.Clone(says), signed[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.inside, digest[:])
	require.NoError(t, err)
	return passkey.Assertion{ClientData: []byte(client), AuthenticatorData: says, Signature: signature}
}

func (a authenticator) sign(t *testing.T, s said) string {
	signature, err := a.assert(t, s).Armor(a.key)
	require.NoError(t, err)
	return signature
}

func TestAPasskeyCountsAsItsHostsPagesAskForIt(t *testing.T) {
	ann := newAuthenticator(t, "unwind.example.com")
	s := open(t, ann.line(t, "ann"))
	for what, c := range map[string]struct {
		change  func(*said)
		refusal string
	}{
		"as it is":                  {nil, ""},
		"at a port":                 {func(s *said) { s.origin += ":8443" }, ""},
		"without a word of origins": {func(s *said) { s.more = "}" }, ""},
		"with what is new":          {func(s *said) { s.more = `,"crossOrigin":false,"new":"x"}` }, ""},
		"with extensions":           {func(s *said) { s.flags |= 1 << 7; s.extensions = "\xa1\x61x\xf5" }, ""},
		"nobody there":              {func(s *said) { s.flags = 0b100 }, "nobody touched the authenticator"},
		"nobody verified":           {func(s *said) { s.flags = 0b1 }, "did not verify the person"},
		"with a credential":         {func(s *said) { s.flags |= 1 << 6 }, "contradicts itself"},
		"hidden extensions":         {func(s *said) { s.extensions = "\xa0" }, "contradicts itself"},
		"missing extensions":        {func(s *said) { s.flags |= 1 << 7 }, "contradicts itself"},
		"a passkey that was made":   {func(s *said) { s.kind = "webauthn.create" }, "asked to sign something else"},
		"another challenge":         {func(s *said) { s.challenge[20] ^= 1 }, "asked to sign something else"},
		"no challenge":              {func(s *said) { s.challenge = nil }, "asked to sign something else"},
		"another page":              {func(s *said) { s.origin = "https://evil.example.com" }, "the passkey is for https://unwind"},
		"a page below":              {func(s *said) { s.origin = "https://x.unwind.example.com" }, "the passkey is for"},
		"no TLS":                    {func(s *said) { s.origin = "http://unwind.example.com" }, "the passkey is for"},
		"a path":                    {func(s *said) { s.origin += "/" }, "the passkey is for"},
		"a name in it":              {func(s *said) { s.origin = "https://x@unwind.example.com" }, "the passkey is for"},
		"in another's page":         {func(s *said) { s.more = `,"crossOrigin":true}` }, "inside a page of somebody else"},
		"under another's page":      {func(s *said) { s.more = `,"crossOrigin":false,"topOrigin":"https://x.com"}` }, "inside a page"},
		"for another host":          {func(s *said) { s.host = "example.com" }, "the signature did not verify"},
	} {
		key, err := s.Verify(statement(), ann.sign(t, saying(statement(), c.change)))
		if c.refusal == "" {
			require.NoError(t, err, what)
			require.Equal(t, ssh.FingerprintSHA256(ann.key), key, what)
			continue
		}
		require.ErrorContains(t, err, "is not over this decision", what)
		require.ErrorContains(t, err, c.refusal, what)
	}

	local := newAuthenticator(t, "localhost")
	_, err := open(t, local.line(t, "ann")).Verify(statement(), local.sign(t, saying(statement(), func(s *said) {
		s.host, s.origin = "localhost", "http://localhost:7381"
	})))
	require.NoError(t, err)
}

// TestAPasskeySignsInABrowserAlone: an SSH client that has one could sign without its person's finger.
func TestAPasskeySignsInABrowserAlone(t *testing.T) {
	ann := newAuthenticator(t, "ssh.example.com")
	asHardware := token{ann.key.PublicKey, ann.inside}
	_, err := open(t, ann.line(t, "ann")).Verify(statement(), asHardware.sign(t, statement(), 0b101))
	require.ErrorContains(t, err, "a passkey signs in a browser alone")

	point, err := ann.inside.PublicKey.Bytes()
	require.NoError(t, err)
	public := marshalKey(t, ssh.Marshal(struct{ Name, Curve, Key, Application string }{
		ssh.KeyAlgoSKECDSA256, "nistp256", string(point), "ssh:"}))
	_, is := passkey.Of(public)
	require.False(t, is)
	signature, err := ann.assert(t, saying(statement(), func(s *said) { s.host = "ssh:" })).Armor(passkey.Key{PublicKey: public})
	require.NoError(t, err)
	_, err = open(t, "ann "+string(ssh.MarshalAuthorizedKey(public))).Verify(statement(), signature)
	require.ErrorContains(t, err, "signature type webauthn-sk-ecdsa-sha2-nistp256@openssh.com for key type sk-ecdsa")
}

func TestAnAssertionIsThatOfOneOfThePersonsPasskeys(t *testing.T) {
	first, second, bob := newAuthenticator(t, "a.example.com"), newAuthenticator(t, "unwind.example.com"),
		newAuthenticator(t, "unwind.example.com")
	cy := newAuthenticator(t, "unwind.example.com")
	s := open(t, strings.Join([]string{first.line(t, "ann"), second.line(t, "ann"), bob.line(t, "bob,bob@example.com"),
		`cy valid-before="20261130Z" ` + strings.TrimPrefix(cy.line(t, "cy"), "cy "),
		"dan " + newPerson(t).line}, "\n"))
	all, err := s.Passkeys()
	require.NoError(t, err)
	require.Equal(t, []Passkey{{Person: "ann"}, {Person: "ann"}, {Person: "bob"}}, all[:3])
	require.Len(t, all, 4)
	require.Equal(t, "cy", all[3].Person)
	require.ErrorContains(t, all[3].Refused, "has expired: it counted until 2026-11-30")
	signature, err := s.Sign(statement(), second.assert(t, saying(statement(), nil)))
	require.NoError(t, err)
	key, err := s.Verify(statement(), signature)
	require.NoError(t, err)
	require.Equal(t, ssh.FingerprintSHA256(second.key), key)

	_, err = s.Sign(statement(), bob.assert(t, saying(statement(), nil)))
	require.ErrorContains(t, err, `is not that of "ann", but of bob`)
	about := statement()
	about.Who = "cy"
	_, err = s.Sign(about, cy.assert(t, saying(about, nil)))
	require.ErrorContains(t, err, "has expired: it counted until 2026-11-30")
	_, err = s.Sign(statement(), second.assert(t, saying(statement(), func(s *said) { s.flags = 1 })))
	require.ErrorContains(t, err, "did not verify the person")

	unknown := newAuthenticator(t, "unwind.example.com").assert(t, saying(statement(), nil))
	changed := second.assert(t, saying(statement(), nil))
	changed.AuthenticatorData[36] ^= 1
	for _, a := range []passkey.Assertion{unknown, changed, {}} {
		_, err = s.Sign(statement(), a)
		require.ErrorContains(t, err, "no passkey in this page's file of signers has signed this")
	}
}

// TestAPasskeySignsDecisionsAlone: what a page shows as one decision must not approve what is to come.
func TestAPasskeySignsDecisionsAlone(t *testing.T) {
	ann := newAuthenticator(t, "unwind.example.com")
	standing := activities.Allowance{Who: "ann"}
	said := saying(statement(), func(s *said) { s.challenge = passkey.Challenge(standing.Text()) })
	_, err := open(t, ann.line(t, "ann")).Verify(standing, ann.sign(t, said))
	require.ErrorContains(t, err, "is a passkey, which signs decisions alone: sign this in a terminal")
}

func TestWhatNoBrowserAnswersIsNoSignature(t *testing.T) {
	ann := newAuthenticator(t, "unwind.example.com")
	valid := ann.assert(t, saying(statement(), nil))
	for what, change := range map[string]func(*passkey.Assertion){
		"signature cannot be read":  func(a *passkey.Assertion) { a.Signature = []byte("x") },
		"has signed cannot be read": func(a *passkey.Assertion) { a.ClientData = []byte("x") },
		"is too short":              func(a *passkey.Assertion) { a.AuthenticatorData = a.AuthenticatorData[:36] },
	} {
		a := valid
		change(&a)
		_, err := a.Armor(ann.key)
		require.ErrorContains(t, err, what)
	}
}

func TestAPasskeyIsOfAKindThatOpenSSHKnows(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKIXPublicKey(&p384.PublicKey)
	require.NoError(t, err)
	for _, key := range [][]byte{encoded, []byte("x"), nil} {
		_, err = passkey.New(key, "localhost")
		require.ErrorContains(t, err, "no key of type ES256")
	}
	for _, host := range []string{"", "127.0.0.1", "[::1]", "ssh:", "a b", "X.com", "a\nb"} {
		_, err = passkey.New(encoded, host)
		require.ErrorContains(t, err, "has no passkeys: open the page by a name")
	}
	for _, name := range []string{"", "ann bob", "*", "ann,bob", "ann\nbob", "ann\n", "#ann",
		"ann\u202ebob", "ann\x1b[1m", "ann\u00a0"} {
		_, err = LineOf(name, newAuthenticator(t, "localhost").key)
		require.Error(t, err, name)
	}
}

// TestNoMutatedDecisionByAPasskeyIsAccepted takes a valid decision, and changes one thing of it.
func TestNoMutatedDecisionByAPasskeyIsAccepted(t *testing.T) {
	ann, bob := newAuthenticator(t, "unwind.example.com"), newAuthenticator(t, "unwind.example.com")
	s := open(t, ann.line(t, "ann")+"\n"+bob.line(t, "bob"))
	mine := ann.sign(t, saying(statement(), nil))
	_, err := s.Verify(statement(), mine)
	require.NoError(t, err, "the decision is valid as it is")
	tried := 0
	refuse := func(what string, signature string) {
		tried++
		_, err := s.Verify(statement(), signature)
		require.Error(t, err, what)
	}
	block, _ := pem.Decode([]byte(mine))
	armored := func(raw []byte) string { return string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: raw})) }
	for i := range block.Bytes {
		for change := 1; change < 256; change += 23 {
			raw := slices.Clone(block.Bytes)
			raw[i] ^= byte(change)
			refuse(fmt.Sprintf("byte %d of the signature", i), armored(raw))
		}
		refuse("a shorter signature", armored(block.Bytes[:i]))
		refuse("a signature without a byte", armored(slices.Delete(slices.Clone(block.Bytes), i, i+1)))
		refuse("a signature with one more", armored(slices.Insert(slices.Clone(block.Bytes), i, 0)))
	}

	// What follows is whole, and not as it was signed.
	var inside struct{ R, S *big.Int }
	var by struct {
		Flags                      byte
		Counter                    uint32
		Origin, Client, Extensions []byte
	}
	sig, err := sshsig.Unarmor([]byte(mine))
	require.NoError(t, err)
	require.NoError(t, ssh.Unmarshal(sig.Signature.Blob, &inside))
	require.NoError(t, ssh.Unmarshal(sig.Signature.Rest, &by))
	as := func(what string, change func()) {
		t.Helper()
		wholeInside, whole, wholeSig, wholeBlob := inside, by, *sig, *sig.Signature
		change()
		again := *sig
		again.Signature = &ssh.Signature{Format: sig.Signature.Format, Blob: ssh.Marshal(inside), Rest: ssh.Marshal(by)}
		refuse(what, string(sshsig.Armor(&again)))
		inside, by, *sig = wholeInside, whole, wholeSig
		*sig.Signature = wholeBlob
	}
	for bit := range 8 {
		as("flags", func() { by.Flags ^= 1 << bit })
	}
	for bit := range 32 {
		as("counter", func() { by.Counter ^= 1 << bit })
	}
	for i := range by.Client {
		for _, b := range []byte{by.Client[i] ^ 1, by.Client[i] ^ 0x20, '"', 0} {
			if b != by.Client[i] {
				as("client data", func() { by.Client = slices.Clone(by.Client); by.Client[i] = b })
			}
		}
		as("shorter client data", func() { by.Client = slices.Delete(slices.Clone(by.Client), i, i+1) })
		as("longer client data", func() { by.Client = slices.Insert(slices.Clone(by.Client), i, ' ') })
	}
	for i := range by.Origin {
		as("origin", func() { by.Origin = slices.Clone(by.Origin); by.Origin[i] ^= 1 })
		as("both origins", func() {
			from := slices.Clone(by.Origin)
			by.Origin = slices.Clone(by.Origin)
			by.Origin[i] ^= 1
			by.Client = bytes.Replace(by.Client, from, by.Origin, 1)
		})
	}
	as("extensions", func() { by.Extensions = []byte{0xa0} })
	as("flagged extensions", func() { by.Flags |= 1 << 7; by.Extensions = []byte{0xa0} })
	for _, change := range []*big.Int{big.NewInt(1), big.NewInt(-1), elliptic.P256().Params().N} {
		as("r", func() { inside.R = new(big.Int).Add(inside.R, change) })
		as("s", func() { inside.S = new(big.Int).Add(inside.S, change) })
	}
	as("swapped", func() { inside.R, inside.S = inside.S, inside.R })
	as("nothing", func() { inside.R, inside.S = new(big.Int), new(big.Int) })
	as("another's key", func() { sig.PublicKey = bob.key.PublicKey })
	as("another format", func() { sig.Signature.Format = ssh.KeyAlgoSKECDSA256 })
	as("another purpose", func() { sig.Namespace = "git" })
	as("another hash", func() { sig.HashAlgorithm = sshsig.HashSHA256 })
	for _, host := range []string{"example.com", "localhost", "ssh:", ""} {
		as("another application", func() {
			point, err := ann.inside.PublicKey.Bytes()
			require.NoError(t, err)
			sig.PublicKey = marshalKey(t, ssh.Marshal(struct{ Name, Curve, Key, Application string }{
				ssh.KeyAlgoSKECDSA256, "nistp256", string(point), host}))
		})
	}
	padded := *sig
	padded.Signature = &ssh.Signature{Format: sig.Signature.Format, Rest: sig.Signature.Rest,
		Blob: ssh.Marshal(struct{ R, S []byte }{append([]byte{0, 0}, inside.R.Bytes()...), inside.S.Bytes()})}
	refuse("a longer number", string(sshsig.Armor(&padded)))
	as("more", func() { by.Extensions = nil; sig.Namespace += "\x00" })
	refuse("bob's", bob.sign(t, saying(statement(), nil)))
	require.GreaterOrEqual(t, tried, 10_000)
	t.Log(tried, "refused")
}

func TestSSHKeygenVerifiesWhatAPasskeySigns(t *testing.T) {
	ann := newAuthenticator(t, "unwind.example.com")
	checkWithKeygen(t, ann.line(t, "ann"), "ann", statement().Text(), ann.sign(t, saying(statement(), nil)))
}

// checkWithKeygen has ssh-keygen accept a signature, and refuse it over another text.
func checkWithKeygen(t *testing.T, allowed, who, text, signature string) {
	testrun.NeedProgram(t, "ssh-keygen", "install openssh-client")
	folder := t.TempDir()
	for name, content := range map[string]string{"allowed": allowed + "\n", "sig": signature} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	verify := func(text string) (string, error) {
		c := exec.Command("ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", who, "-n", activities.SignatureNamespace,
			"-s", "sig")
		c.Dir, c.Stdin = folder, strings.NewReader(text)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := verify(text)
	require.NoError(t, err, out)
	require.Contains(t, out, "Good \"unwind-approval@v1\" signature for ann with ECDSA-SK key SHA256:")
	out, err = verify(text + " ")
	require.Error(t, err)
	require.Contains(t, out, "Signature verification failed")
}
