package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProviderInstallation(t *testing.T) {
	mirror := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(mirror, "example.com", "acme", "cloud", "1.0.0"), 0o755))
	assert.Equal(t, fmt.Sprintf(`provider_installation {
  filesystem_mirror {
    path = %q
  }
  direct {
    exclude = ["example.com/acme/cloud"]
  }
}
`, mirror), providerInstallation([]string{t.TempDir(), mirror}))
}

func TestVariablesThatChangeTerraformAreRefused(t *testing.T) {
	for name, ok := range map[string]bool{"AWS_PROFILE": true, "TF_TOKEN_app_terraform_io": true, "TF_VAR_x": false,
		"TF_LOG": false, "A B": false, "": false} {
		assert.Equal(t, ok, CheckVariable(name) == nil, name)
	}
}
