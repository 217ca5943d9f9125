// Package seal encrypts what the journal keeps.
package seal

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// Cipher encrypts what the journal keeps, with a key that is made once. The key is read at each
// use, so that a lost one can be restored while the worker runs.
type Cipher struct{ path string }

// OpenCipher makes the key unless there is one, or there are records already: a new key could not
// read them.
func OpenCipher(path string, records bool) (*Cipher, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !records {
		if err := makeKey(path); err != nil {
			return nil, fmt.Errorf("terraform: key: %w", err)
		}
	}
	return &Cipher{path}, nil
}

func (s *Cipher) readKey() ([]byte, error) {
	key, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, activities.Errorf(activities.DamagedRecord,
			"the key %s is gone, and without it the records cannot be read: restore it from a "+
				"backup and try again", s.path)
	}
	if err != nil {
		return nil, fmt.Errorf("terraform: key: %w", err)
	}
	return key, nil
}

func (s *Cipher) cipher() (cipher.AEAD, error) {
	key, err := s.readKey()
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, activities.Errorf(activities.DamagedRecord,
			"the key %s is damaged: %v; restore it from a backup and try again", s.path, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// makeKey links a complete, synced key to its name: of two processes that make one, both read the
// first.
func makeKey(path string) error {
	key := make([]byte, 32)
	rand.Read(key)
	if err := durable.Create(path, key); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Encrypt encodes and encrypts v. name binds the result to its place: it decrypts under no other.
func (s *Cipher) Encrypt(name string, v any) ([]byte, error) {
	gcm, err := s.cipher()
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return gcm.Seal(nil, nil, packed.Bytes(), []byte(name)), nil //nolint:gosec // this GCM makes its own random nonces
}

// Sign returns what only a holder of the key can make of v. name says what for: what is signed under
// one is not under another.
func (s *Cipher) Sign(name string, v any) (string, error) {
	key, err := s.readKey()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%q", name)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// Decrypt is the inverse of Encrypt. What it cannot decrypt or decode is a DamagedRecord.
func (s *Cipher) Decrypt(name string, sealed []byte, v any) error {
	gcm, err := s.cipher()
	if err != nil {
		return err
	}
	packed, err := gcm.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return activities.Errorf(activities.DamagedRecord, "%s cannot be decrypted with this worker's key: %v", name, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return activities.Errorf(activities.DamagedRecord, "%s: %v", name, err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return activities.Errorf(activities.DamagedRecord, "%s: %v", name, err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return activities.Errorf(activities.DamagedRecord, "%s: %v", name, err)
	}
	return nil
}
