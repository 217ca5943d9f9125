package task

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
)

// bare is a Compiled as encoding/json sees it without the methods below.
type bare Compiled

// packed is how a large task is carried.
type packed struct {
	Gzip []byte `json:"gzip"`
}

// MarshalJSON writes a small task as it stands, so that the history reads by itself, and one of more than MaxCompressed
// bytes compressed: a server takes no payload of more than 2 MB, and 10,000 steps have more.
func (c Compiled) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(bare(c))
	if err != nil || len(raw) <= MaxCompressed {
		return raw, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(raw) // a buffer takes all
	_ = z.Close()
	if b.Len() > MaxCompressed {
		return nil, fmt.Errorf("the compiled task has %d bytes compressed, more than %d", b.Len(), MaxCompressed)
	}
	return json.Marshal(packed{b.Bytes()})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (c *Compiled) UnmarshalJSON(raw []byte) error {
	var p packed
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if p.Gzip != nil {
		z, err := gzip.NewReader(bytes.NewReader(p.Gzip))
		if err != nil {
			return err
		}
		// What Compile has let through is far smaller; more is not from it.
		const most = 8 * MaxCompiled
		if raw, err = io.ReadAll(io.LimitReader(z, most+1)); err != nil {
			return err
		}
		if len(raw) > most {
			return fmt.Errorf("the compiled task has more than %d bytes", most)
		}
	}
	return json.Unmarshal(raw, (*bare)(c))
}
