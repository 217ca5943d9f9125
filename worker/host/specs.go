package host

import (
	"fmt"
	"os"

	"github.com/seed-62bf7108/unwind/activities"
)

// Specs are the actions of the worlds that a config opens, or with nil of all built-in worlds, without opening any of them:
// to check or document a task without a worker. The program must have called [Hooks] first.
func Specs(c *Config) ([]activities.Spec, error) {
	// A Spec depends on no limit, and a world opened on a temporary folder leaves nothing behind.
	folder, err := os.MkdirTemp("", "unwind-specs-")
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer os.RemoveAll(folder)
	const key = "KEY"
	scratch := Config{State: folder, Secrets: map[string]string{key: "env:" + key}}
	if c == nil || c.File != nil {
		scratch.File = &FileConfig{Roots: []string{folder}}
	}
	if c == nil || c.Container != nil {
		scratch.Container = &ContainerConfig{}
	}
	if c == nil || c.Terraform != nil {
		scratch.Terraform = &TerraformConfig{Roots: []string{folder}}
	}
	if c == nil || c.Stripe != nil {
		scratch.Stripe = &StripeConfig{Key: key}
	}
	worlds, err := openWorlds(scratch)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	return activities.NewRegistry(worlds...).Specs(), nil
}
