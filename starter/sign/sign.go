// Package sign signs decisions with a person's SSH key, as ssh-keygen -Y sign does: with a key file, or
// with the SSH agent, which also has the keys that are locked or on hardware.
package sign

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-62bf7108/unwind/activities"
)

// socketVariable says where the SSH agent listens.
const socketVariable = "SSH_AUTH_SOCK"

// Text signs what a person says with the key in a file. With the file of a public key, the agent signs;
// with no file the agent does with its only key.
func Text(file string, s activities.Signable) (string, error) {
	signer, closeAgent, err := find(file)
	if err != nil {
		return "", err
	}
	defer closeAgent()
	sig, err := sshsig.Sign(strings.NewReader(s.Text()), signer, sshsig.HashSHA512, activities.SignatureNamespace)
	if err != nil {
		return "", fmt.Errorf("key %s does not sign: %w", ssh.FingerprintSHA256(signer.PublicKey()), err)
	}
	return string(sshsig.Armor(sig)), nil
}

// find returns what signs, and how to let go of it.
func find(file string) (signer ssh.Signer, letGo func(), err error) {
	if file == "" {
		return findInAgent(nil)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("--key: %w", err)
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(raw); err == nil {
		return findInAgent(public)
	}
	signer, notRead := ssh.ParsePrivateKey(raw)
	if notRead == nil {
		return signer, func() {}, nil
	}
	beside, err := os.ReadFile(file + ".pub") // the agent may have what is locked or on hardware
	if err == nil {
		if public, _, _, _, err := ssh.ParseAuthorizedKey(beside); err == nil {
			if signer, letGo, err = findInAgent(public); err == nil {
				return signer, letGo, nil
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if _, isLocked := errors.AsType[*ssh.PassphraseMissingError](notRead); isLocked {
		return nil, nil, fmt.Errorf("--key %s: it has a passphrase, and the SSH agent does not have it: run ssh-add %s",
			file, file)
	}
	return nil, nil, fmt.Errorf("--key %s: it cannot be read (%w); give a private key of OpenSSH, or the public one of a "+
		"key in the SSH agent", file, notRead)
}

// findInAgent returns the key of the agent that is wanted; with none its only one.
func findInAgent(wanted ssh.PublicKey) (ssh.Signer, func(), error) {
	socket := os.Getenv(socketVariable)
	if socket == "" {
		return nil, nil, fmt.Errorf("there is no SSH agent (%s is not set): start one, or give --key with a private key",
			socketVariable)
	}
	conn, err := net.Dial("unix", socket) //nolint:gosec // whose agent it is, is for the user to say
	if err != nil {
		return nil, nil, fmt.Errorf("the SSH agent does not answer: %w", err)
	}
	letGo := func() { _ = conn.Close() }
	signers, err := agent.NewClient(conn).Signers()
	var found []ssh.Signer
	var names []string
	for _, s := range signers {
		if strings.Contains(s.PublicKey().Type(), "-cert-") {
			continue
		}
		names = append(names, ssh.FingerprintSHA256(s.PublicKey()))
		if wanted == nil || bytes.Equal(s.PublicKey().Marshal(), wanted.Marshal()) {
			found = append(found, s)
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("the SSH agent does not name its keys: %w", err)
	case len(found) == 1:
		return found[0], letGo, nil
	case wanted != nil:
		err = fmt.Errorf("the SSH agent does not have key %s: run ssh-add with it", ssh.FingerprintSHA256(wanted))
	case len(found) == 0:
		err = errors.New("the SSH agent has no key: run ssh-add, or give --key with a private key")
	default:
		err = fmt.Errorf("the SSH agent has several keys (%s): give --key with the public key of yours",
			strings.Join(names, ", "))
	}
	letGo()
	return nil, nil, err
}
