package sign

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-62bf7108/unwind/activities"
)

// serveAgent runs an SSH agent for a test, at which SSH_AUTH_SOCK points.
func serveAgent(t *testing.T) agent.Agent {
	keys := agent.NewKeyring()
	socket := filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(keys, conn) }()
		}
	}()
	t.Setenv(socketVariable, socket)
	return keys
}

// newKey makes a key in a file, locked by a passphrase if one is given, with its public key beside it.
func newKey(t *testing.T, passphrase string) (file string, private ed25519.PrivateKey) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "id_ed25519")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	public, err := ssh.NewPublicKey(private.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(public), 0o600))
	return file, private
}

var decision = activities.Statement{Task: "release", Step: "publish", Verdict: activities.Approve, Who: "ann"}

// isSigned checks a signature over the decision with a key.
func isSigned(t *testing.T, private ed25519.PrivateKey, file string) {
	t.Helper()
	signature, err := Text(file, decision)
	require.NoError(t, err)
	sig, err := sshsig.Unarmor([]byte(signature))
	require.NoError(t, err)
	public, err := ssh.NewPublicKey(private.Public())
	require.NoError(t, err)
	require.NoError(t, sshsig.Verify(strings.NewReader(decision.Text()), sig, public, sig.HashAlgorithm,
		activities.SignatureNamespace))
}

func TestAKeyFileOrTheAgentSigns(t *testing.T) {
	keys := serveAgent(t)
	_, err := Text("", decision)
	require.ErrorContains(t, err, "the SSH agent has no key: run ssh-add")
	open, openKey := newKey(t, "")
	isSigned(t, openKey, open)
	locked, lockedKey := newKey(t, "secret")
	_, err = Text(locked, decision)
	require.ErrorContains(t, err, "it has a passphrase, and the SSH agent does not have it: run ssh-add "+locked)

	require.NoError(t, keys.Add(agent.AddedKey{PrivateKey: lockedKey}))
	isSigned(t, lockedKey, "")
	isSigned(t, lockedKey, locked)
	isSigned(t, lockedKey, locked+".pub")
	_, err = Text(open+".pub", decision)
	require.ErrorContains(t, err, "the SSH agent does not have key SHA256:")
	require.NoError(t, keys.Add(agent.AddedKey{PrivateKey: openKey}))
	_, err = Text("", decision)
	require.ErrorContains(t, err, "the SSH agent has several keys (SHA256:")
	isSigned(t, openKey, open+".pub")
}

func TestWithoutAnAgentAKeyIsAskedFor(t *testing.T) {
	t.Setenv(socketVariable, "")
	_, err := Text("", decision)
	require.ErrorContains(t, err, "there is no SSH agent (SSH_AUTH_SOCK is not set): start one, or give --key")
	_, err = Text(filepath.Join(t.TempDir(), "none"), decision)
	require.ErrorIs(t, err, os.ErrNotExist)
	file := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(file, []byte("no key"), 0o600))
	_, err = Text(file, decision)
	require.ErrorContains(t, err, "it cannot be read")
}
