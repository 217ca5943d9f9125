package task

import (
	"fmt"

	"github.com/seed-62bf7108/unwind/workflows/packed"
)

// bare is a Compiled as encoding/json sees it without the methods below.
type bare Compiled

// MarshalJSON packs a large task: 10,000 steps have more bytes than a payload may have.
func (c Compiled) MarshalJSON() ([]byte, error) {
	raw, err := packed.Marshal(bare(c))
	if err != nil {
		return nil, fmt.Errorf("the compiled task: %w", err)
	}
	return raw, nil
}

// UnmarshalJSON reads what MarshalJSON has written.
func (c *Compiled) UnmarshalJSON(raw []byte) error {
	return packed.Unmarshal(raw, (*bare)(c))
}
