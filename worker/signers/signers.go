package signers

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/passkey"
)

// Signers are the persons whose signatures count. Their files are read for each signature: a key
// that is taken out, or revoked, no longer counts from then on.
type Signers struct {
	file    string
	revoked string // empty for none
	now     func() time.Time
}

// Open reads the files once, so that a worker does not start with a mistake in them. Its error names
// the line.
func Open(file, revoked string) (*Signers, error) {
	s := &Signers{file: file, revoked: revoked, now: time.Now}
	keys, err := s.read()
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("%s: nobody is in it, so nobody could decide; write lines such as ann@example.com ssh-ed25519 KEY",
			file)
	}
	return s, err
}

// Verify implements activities.Signers.
func (s *Signers) Verify(about activities.Signable, signature string) (string, error) {
	sig, err := parse(signature)
	if err != nil {
		return "", err
	}
	keys, err := s.read()
	if err != nil {
		return "", fmt.Errorf("nobody's signature counts until the worker's files of signers are right: %w", err)
	}
	fingerprint := ssh.FingerprintSHA256(sig.PublicKey)
	i := slices.IndexFunc(keys, func(k key) bool { return bytes.Equal(k.public.Marshal(), sig.PublicKey.Marshal()) })
	if i < 0 {
		return "", fmt.Errorf("key %s is not one of the worker's signers", fingerprint)
	}
	if err := keys[i].check(about.By(), s.now()); err != nil {
		return "", fmt.Errorf("key %s %w", fingerprint, err)
	}
	public := keys[i].public
	if k, is := passkey.Of(public); is {
		if _, isDecision := about.(activities.Statement); !isDecision {
			return "", fmt.Errorf("key %s is a passkey, which signs decisions alone: sign this in a terminal", fingerprint)
		}
		public = k
	}
	err = sshsig.Verify(strings.NewReader(about.Text()), sig, public, sig.HashAlgorithm, activities.SignatureNamespace)
	if err != nil {
		return "", fmt.Errorf("the signature by key %s is not over this decision: %w", fingerprint, err)
	}
	return fingerprint, nil
}

// parse reads an armored signature. There is one way to write each.
func parse(signature string) (*sshsig.Signature, error) {
	if signature == "" {
		return nil, errors.New("it is not signed, and a bare name is only a claim; sign it with --key, as in " +
			"`starter approve --key FILE`")
	}
	if len(signature) > activities.MaxSignature {
		return nil, fmt.Errorf("its signature has %s, at most %d are read", activities.CountOf(len(signature), "byte"),
			activities.MaxSignature)
	}
	block, rest := pem.Decode([]byte(signature))
	if block == nil || block.Type != sshsig.PEMType || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("its signature is not one of ssh-keygen -Y sign: give all of the file, with BEGIN and END")
	}
	sig, err := sshsig.ParseSignature(block.Bytes)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its signature cannot be read: %w", err)
	case !bytes.Equal(sig.Marshal(), block.Bytes):
		return nil, errors.New("its signature holds more than a signature")
	case len(sig.Signature.Rest) > 0 && !isSecurityKey(sig.PublicKey):
		return nil, errors.New("its signature holds more than a signature")
	}
	return sig, nil
}

// isSecurityKey reports whether a key is on a hardware token, whose signatures say whether a person
// touched it: those without a touch do not verify.
func isSecurityKey(k ssh.PublicKey) bool {
	return k.Type() == ssh.KeyAlgoSKED25519 || k.Type() == ssh.KeyAlgoSKECDSA256
}
