package task

import (
	"fmt"

	"github.com/seed-62bf7108/unwind/workflows/packed"
)

// plainCompiled is a Compiled without the methods below.
type plainCompiled Compiled

// MarshalJSON packs a large task: 10,000 steps have more bytes than a payload may have.
func (c Compiled) MarshalJSON() ([]byte, error) {
	raw, err := packed.Marshal(plainCompiled(c))
	if err != nil {
		return nil, fmt.Errorf("the compiled task: %w", err)
	}
	return raw, nil
}

// UnmarshalJSON reads what MarshalJSON has written.
func (c *Compiled) UnmarshalJSON(raw []byte) error {
	return packed.Unmarshal(raw, (*plainCompiled)(c))
}
