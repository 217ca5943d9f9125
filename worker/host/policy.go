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
		if c.PolicyToken != "" {
			return nil, fmt.Errorf("%s: policyToken: there is no policy that could ask an OPA; name one, or leave it out",
				c.cite("policyToken"))
		}
		return nil, nil
	}
	rules, err := policy.Load(c.besides(c.Policy), c.Host)
	if err != nil {
		return nil, fmt.Errorf("%s: policy: %w", c.cite("policy"), err)
	}
	if c.PolicyToken != "" {
		token := func() (string, error) { return workerSecrets{c}.Read(c.PolicyToken) }
		if err := rules.Bear(token); err != nil {
			return nil, fmt.Errorf("%s: policyToken: %w; leave it out", c.cite("policyToken"), err)
		}
	}
	return rules, nil
}

// besides is a file that the config names: relative to the config's own folder.
func (c Config) besides(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(c.file), file)
}
