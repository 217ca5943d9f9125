package packed

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// Max is how many bytes a value may have as it stands, and compressed.
const Max = 1_000_000

// maxPlain bounds what is read back: more is not from Marshal.
const maxPlain = 256 << 20

// envelope is how a large value is carried.
type envelope struct {
	Gzip []byte `json:"gzip"`
}

// prefix begins the JSON of an envelope. No value that is packed has a field of that name.
const prefix = `{"gzip":`

// Marshal writes a small value as it stands, so that a history reads by itself, and one of more than Max bytes compressed.
// It is an error where that is more than Max bytes too.
func Marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil || len(raw) <= Max {
		return raw, err
	}
	small := compress(raw)
	if len(small) > Max {
		return nil, fmt.Errorf("it has %d bytes compressed, more than %d", len(small), Max)
	}
	return json.Marshal(envelope{small})
}

func compress(raw []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(raw) // a buffer takes all
	_ = z.Close()
	return b.Bytes()
}

// Size is how many bytes the JSON of v has, compressed.
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
