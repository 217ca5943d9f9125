package packed

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-62bf7108/unwind/activities"
)

// Max is the largest size in bytes of a value that is not compressed, and of one that is.
const Max = 1_000_000

// maxPlain bounds the size of a value that is read back: a larger one is not from Marshal.
const maxPlain = 256 << 20

// envelope carries a large value.
type envelope struct {
	Gzip []byte `json:"gzip"`
}

// prefix is the beginning of an envelope's JSON. No packed value has a field of that name.
const prefix = `{"gzip":`

// Marshal encodes a value as plain JSON, so that a history is readable, or compressed if that has
// more than Max bytes. It fails if the compressed value has more than Max bytes too.
func Marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) <= Max {
		return raw, err
	}
	small := compress(raw)
	if len(small) > Max {
		return nil, fmt.Errorf("it has %s compressed, more than %d", activities.CountOf(len(small), "byte"), Max)
	}
	return json.Marshal(envelope{small})
}

func compress(raw []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(raw) // a buffer does not fail
	_ = z.Close()
	return b.Bytes()
}

// Size returns the size in bytes of v's compressed JSON.
func Size(v any) (int, error) {
	raw, err := json.Marshal(v)
	return len(compress(raw)), err
}

// Unmarshal reads what Marshal has written.
func Unmarshal(raw []byte, v any) error {
	if bytes.HasPrefix(raw, []byte(prefix)) {
		var e envelope
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		z, err := gzip.NewReader(bytes.NewReader(e.Gzip))
		if err != nil {
			return err
		}
		if raw, err = io.ReadAll(io.LimitReader(z, maxPlain+1)); err != nil {
			return err
		}
		if len(raw) > maxPlain {
			return fmt.Errorf("it has more than %d bytes", maxPlain)
		}
	}
	return json.Unmarshal(raw, v)
}
