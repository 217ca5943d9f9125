package stage

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed main.tf
var configuration []byte

// setInfra applies the configuration of the previous release, so that there is a state to return
// to.
func (s *Stage) setInfra(ctx context.Context, log io.Writer) error {
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		return missingError{"there is no terraform on PATH; install Terraform to see it taken back"}
	}
	infra := s.path(infraFolder)
	if err := os.WriteFile(filepath.Join(infra, "main.tf"), configuration, 0o644); err != nil {
		return err
	}
	if err := runTerraform(ctx, terraform, infra, "version"); err != nil {
		return missingError{fmt.Sprintf("terraform does not run: %v", err)}
	}
	fmt.Fprintln(log, "applying the infrastructure of release 1.4.2")
	regions, err := json.Marshal([]string{"eu"})
	if err != nil {
		return err
	}
	if err := runTerraform(ctx, terraform, infra, "init", "-input=false"); err != nil {
		return err
	}
	return runTerraform(ctx, terraform, infra, "apply", "-input=false", "-auto-approve",
		"-var=release=1.4.2", "-var=regions="+string(regions), "-var=effects="+s.path(effectsFolder))
}

// runTerraform runs terraform without the user's settings.
func runTerraform(ctx context.Context, terraform, folder string, args ...string) error {
	c := exec.CommandContext(ctx, terraform, append(args, "-no-color")...)
	c.Dir = folder
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TF_") {
			c.Env = append(c.Env, v)
		}
	}
	c.Env = append(c.Env, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
	if said, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("terraform %s: %w\n%s", args[0], err, said)
	}
	return nil
}
