package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/terraform"
)

func TestTerraformGetsSecretsByNameAndNoneOfTheWorkersOwn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(file, []byte("the-key-of-the-cloud\n"), 0o600))
	written := filepath.Join(dir, "worker.yaml")
	require.NoError(t, os.WriteFile(written, []byte(`
host: h
state: `+dir+`/state
secrets: {CLOUD: "file:`+file+`", STRIPE: env:STRIPE_KEY, ALSO_STRIPE: env:STRIPE_KEY}
stripe: {key: STRIPE}
terraform:
  roots: [`+dir+`]
  environment: [AWS_PROFILE]
  secretEnvironment: {AWS_SECRET_ACCESS_KEY: CLOUD}
`), 0o600))
	c, err := ReadConfig(written)
	require.NoError(t, err)
	c, err = c.WithDefaults()
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	settings := SettingsOf[*terraform.Settings](c)
	values, err := settings.ReadSecrets(workerSecrets{c})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"AWS_SECRET_ACCESS_KEY": "the-key-of-the-cloud"}, values)
	hidden := c.hiddenPaths()
	for _, path := range []string{written, file, filepath.Join(dir, "state"), "/run/secrets"} {
		require.Contains(t, hidden, path)
	}

	settings.Environment = []string{"STRIPE_KEY", "TF_LOG"}
	settings.SecretEnvironment = map[string]string{"A": "STRIPE", "B": "ALSO_STRIPE", "C": "NOBODY", "TF_VAR_x": "CLOUD"}
	err = c.Validate()
	for _, problem := range []string{
		"terraform.environment: STRIPE_KEY holds a secret of the worker itself",
		"terraform.environment: TF_LOG changes how Terraform works",
		"terraform.secretEnvironment.A: STRIPE is a secret of the worker itself",
		"terraform.secretEnvironment.B: ALSO_STRIPE is a secret of the worker itself",
		`terraform.secretEnvironment.C: "NOBODY" is not one of secrets`,
		"terraform.secretEnvironment.TF_VAR_x: TF_VAR_x changes how Terraform works",
	} {
		require.ErrorContains(t, err, problem)
	}
}
