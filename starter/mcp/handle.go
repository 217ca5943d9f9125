package mcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// Key seals handles. Whoever has it can make one for any session.
type Key []byte

// encoding has only letters and digits that agents copy without mistakes.
var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// sign returns what only the holder of the key can make of the parts, for one purpose.
func (k Key) sign(purpose string, parts ...string) string {
	sum := hmac.New(sha256.New, k)
	for _, p := range append([]string{purpose}, parts...) {
		fmt.Fprintf(sum, "%d:%s", len(p), p)
	}
	return strings.ToLower(encoding.EncodeToString(sum.Sum(nil))[:26]) // 130 bits
}

// handleOf is the handle of a session: ID@NAMESPACE.SEAL. The id of its workflow can be seen by
// many; without the seal it gives no access.
func (k Key) handleOf(id, namespace string) string {
	return id + "@" + namespace + "." + k.sign("handle", id, namespace)
}

// readHandle returns the id of the session that a handle is for.
func (k Key) readHandle(handle, namespace string) (id string, err error) {
	at, dot := strings.LastIndex(handle, "@"), strings.LastIndex(handle, ".")
	if at <= 0 || dot < at {
		return "", Problem{BadHandle, "session: give the handle that open returned, whole and unchanged"}
	}
	id = handle[:at]
	if !hmac.Equal([]byte(handle), []byte(k.handleOf(id, handle[at+1:dot]))) {
		return "", Problem{BadHandle,
			"session: this handle was not made here; give the one that open returned, whole and unchanged"}
	}
	if of := handle[at+1 : dot]; of != namespace {
		return "", Problem{OtherNamespace,
			fmt.Sprintf("session: the handle is for namespace %q, and this server works in %q", of, namespace)}
	}
	return id, nil
}
