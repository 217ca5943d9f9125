package host

import (
	"fmt"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/policy"
)

// openPolicy reads the rules by which this worker judges; nil if the config names none.
func (c Config) openPolicy() (activities.Rules, error) {
	if c.Policy == "" {
		return nil, nil
	}
	file := c.Policy
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(c.file), file)
	}
	rules, err := policy.Load(file, c.Host)
	if err != nil {
		return nil, fmt.Errorf("%s: policy: %w", c.cite("policy"), err)
	}
	return rules, nil
}
