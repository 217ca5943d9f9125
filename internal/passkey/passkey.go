// Package passkey has a browser sign what a person decides, in the format that OpenSSH has for it: an SSH
// signature of the type webauthn-sk-ecdsa-sha2-nistp256@openssh.com, which ssh-keygen -Y verify knows. Its
// key is an ordinary line in a file of allowed signers.
package passkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
)

// format is that of the signatures: see PROTOCOL.u2f of OpenSSH.
const format = "webauthn-sk-ecdsa-sha2-nistp256@openssh.com"

// Key is the public key of a passkey: it has the type of OpenSSH's keys on hardware, and its application is
// the name of a host. Only pages of that host can have the passkey sign.
type Key struct {
	ssh.PublicKey

	host string
}

// Of returns a key as that of a passkey, if it is one. OpenSSH's own keys on hardware have an application
// that begins with ssh:.
func Of(k ssh.PublicKey) (Key, bool) {
	var parts keyParts
	if k.Type() != ssh.KeyAlgoSKECDSA256 || ssh.Unmarshal(k.Marshal(), &parts) != nil {
		return Key{}, false
	}
	return Key{k, parts.Application}, !strings.HasPrefix(parts.Application, "ssh:")
}

type keyParts struct{ Name, Curve, Point, Application string }

// hostName is a host by its name: an address has no passkeys.
var hostName = regexp.MustCompile(`^([a-z0-9-]+\.)*[a-z][a-z0-9-]*$`)

// New returns the key of a passkey that a browser has made for a host, of the encoded public key that it
// tells.
func New(encoded []byte, host string) (Key, error) {
	if !hostName.MatchString(host) {
		return Key{}, fmt.Errorf("host %q has no passkeys: open the page by a name", host)
	}
	public, err := x509.ParsePKIXPublicKey(encoded)
	inside, is := public.(*ecdsa.PublicKey)
	if err != nil || !is || inside.Curve != elliptic.P256() {
		return Key{}, errors.New("the browser has made no key of type ES256, and OpenSSH knows no other passkeys")
	}
	point, err := inside.Bytes()
	if err != nil {
		return Key{}, err
	}
	k, err := ssh.ParsePublicKey(ssh.Marshal(keyParts{ssh.KeyAlgoSKECDSA256, "nistp256", string(point), host}))
	return Key{k, host}, err
}

// Challenge is what a browser is to sign for a text.
func Challenge(text string) []byte {
	digest := sha512.Sum512([]byte(text))
	return append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Digest string }{
		activities.SignatureNamespace, "", sshsig.HashSHA512.String(), string(digest[:]),
	})...)
}

// Assertion is what a browser answers to a challenge.
type Assertion struct {
	ClientData        []byte `json:"clientData"`
	AuthenticatorData []byte `json:"authenticatorData"`
	Signature         []byte `json:"signature"`
}

// IsBy reports whether the key has made the assertion, whatever that says.
func (a Assertion) IsBy(k Key) bool {
	client := sha256.Sum256(a.ClientData)
	digest := sha256.Sum256(slices.Concat(a.AuthenticatorData, client[:]))
	return ecdsa.VerifyASN1(k.inside(), digest[:], a.Signature)
}

// points are an ECDSA signature.
type points struct{ R, S *big.Int }

// signed is what a signature has beside them.
type signed struct {
	Flags      byte
	Counter    uint32
	Origin     string
	ClientData []byte
	Extensions []byte
}

// headSize is how long what an authenticator says is without extensions: a digest of the host, flags and
// a counter.
const headSize = sha256.Size + 1 + 4

// Armor makes an SSH signature of an assertion. Whether it verifies, the key says.
func (a Assertion) Armor(k Key) (string, error) {
	var inside points
	if rest, err := asn1.Unmarshal(a.Signature, &inside); err != nil || len(rest) > 0 {
		return "", errors.New("the browser's signature cannot be read")
	}
	var client struct {
		Origin string `json:"origin"`
	}
	if err := json.Unmarshal(a.ClientData, &client); err != nil {
		return "", fmt.Errorf("what the browser has signed cannot be read: %w", err)
	}
	if len(a.AuthenticatorData) < headSize {
		return "", errors.New("what the browser says of the passkey is too short")
	}
	head, extensions := a.AuthenticatorData[:headSize], a.AuthenticatorData[headSize:]
	return string(sshsig.Armor(&sshsig.Signature{Version: 1, PublicKey: k.PublicKey,
		Namespace: activities.SignatureNamespace, HashAlgorithm: sshsig.HashSHA512,
		Signature: &ssh.Signature{Format: format, Blob: ssh.Marshal(inside), Rest: ssh.Marshal(signed{
			head[sha256.Size], binary.BigEndian.Uint32(head[sha256.Size+1:]), client.Origin, a.ClientData, extensions,
		})}})), nil
}

// What an authenticator says of a person, and of what follows.
const (
	isPresent     = 1 << 0
	isVerified    = 1 << 2
	hasCredential = 1 << 6
	hasExtensions = 1 << 7
)

// Verify implements ssh.PublicKey: only what a page of the host has asked for counts, and only with the
// person verified.
func (k Key) Verify(data []byte, sig *ssh.Signature) error {
	if sig.Format != format {
		return fmt.Errorf("it is of type %s, and a passkey signs in a browser alone", sig.Format)
	}
	var inside points
	var by signed
	if ssh.Unmarshal(sig.Blob, &inside) != nil || ssh.Unmarshal(sig.Rest, &by) != nil ||
		!bytes.Equal(ssh.Marshal(inside), sig.Blob) || !bytes.Equal(ssh.Marshal(by), sig.Rest) {
		return errors.New("it cannot be read")
	}
	switch {
	case by.Flags&isPresent == 0:
		return errors.New("nobody touched the authenticator")
	case by.Flags&isVerified == 0:
		return errors.New("the authenticator did not verify the person, by a PIN, a fingerprint or a face: set that up")
	case by.Flags&hasCredential != 0, (by.Flags&hasExtensions != 0) != (len(by.Extensions) > 0):
		return errors.New("what the authenticator says contradicts itself")
	}
	if err := k.checkClient(data, by); err != nil {
		return err
	}
	host, client := sha256.Sum256([]byte(k.host)), sha256.Sum256(by.ClientData)
	digest := sha256.Sum256(bytes.Join([][]byte{
		host[:], {by.Flags}, binary.BigEndian.AppendUint32(nil, by.Counter), by.Extensions, client[:],
	}, nil))
	if !ecdsa.Verify(k.inside(), digest[:], inside.R, inside.S) {
		return errors.New("the signature did not verify")
	}
	return nil
}

func (k Key) inside() *ecdsa.PublicKey {
	return k.PublicKey.(ssh.CryptoPublicKey).CryptoPublicKey().(*ecdsa.PublicKey)
}

// checkClient checks for what, and at whose page, the browser says that the passkey was asked to sign.
// Browsers write these fields first, in this order, and OpenSSH too takes no other.
func (k Key) checkClient(challenge []byte, by signed) error {
	if !isOf(by.Origin, k.host) {
		return fmt.Errorf("a page of %s asked for it, and the passkey is for https://%s", by.Origin, k.host)
	}
	begin := fmt.Sprintf(`{"type":"webauthn.get","challenge":%q,"origin":%q`,
		base64.RawURLEncoding.EncodeToString(challenge), by.Origin)
	if !bytes.HasPrefix(by.ClientData, []byte(begin)) {
		return errors.New("the browser was asked to sign something else")
	}
	var more struct {
		CrossOrigin bool   `json:"crossOrigin"`
		TopOrigin   string `json:"topOrigin"`
	}
	switch err := json.Unmarshal(by.ClientData, &more); {
	case err != nil:
		return fmt.Errorf("what the browser has signed cannot be read: %w", err)
	case more.CrossOrigin, more.TopOrigin != "":
		return errors.New("the page that asked for it was inside a page of somebody else")
	}
	return nil
}

// isOf reports whether an origin is that of a host's pages, which nobody has changed on their way.
func isOf(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http" && host == "localhost") &&
		u.Hostname() == host && origin == u.Scheme+"://"+u.Host
}
