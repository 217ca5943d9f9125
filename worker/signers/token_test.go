package signers

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-62bf7108/unwind/activities"
)

// token is a hardware key, with what is inside it.
type token struct {
	public ssh.PublicKey
	inside crypto.Signer
}

func marshalKey(t *testing.T, raw []byte) ssh.PublicKey {
	public, err := ssh.ParsePublicKey(raw)
	require.NoError(t, err)
	return public
}

// sign signs a statement with the token, which sets the flags: 1 says that a person has touched it.
func (k token) sign(t *testing.T, s activities.Statement, flags byte) string {
	sig, err := sshsig.Sign(strings.NewReader(s.Text()), flagged{k, flags}, sshsig.HashSHA512,
		activities.SignatureNamespace)
	require.NoError(t, err)
	return string(sshsig.Armor(sig))
}

type flagged struct {
	token

	flags byte
}

func (f flagged) PublicKey() ssh.PublicKey { return f.public }

func (f flagged) Sign(_ io.Reader, data []byte) (*ssh.Signature, error) {
	application, message := sha256.Sum256([]byte("ssh:")), sha256.Sum256(data)
	rest := []byte{f.flags, 0, 0, 0, 9}
	signed := append(append(application[:], rest...), message[:]...)
	switch inside := f.inside.(type) {
	case ed25519.PrivateKey:
		return &ssh.Signature{Format: f.public.Type(), Blob: ed25519.Sign(inside, signed), Rest: rest}, nil
	case *ecdsa.PrivateKey:
		digest := sha256.Sum256(signed)
		r, s, err := ecdsa.Sign(rand.Reader, inside, digest[:])
		return &ssh.Signature{Format: f.public.Type(), Blob: ssh.Marshal(struct{ R, S *big.Int }{r, s}), Rest: rest}, err
	}
	return nil, io.ErrUnexpectedEOF
}
