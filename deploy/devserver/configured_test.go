package devserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/contrib/envconfig"
)

func TestWhichServerTheUserNamed(t *testing.T) {
	profiles := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(profiles, []byte(`
[profile.default]
namespace = "nearby"

[profile.prod]
address = "temporal.example:7233"
namespace = "orders"
`), 0o600))
	for name, test := range map[string]struct {
		env                map[string]string
		address, namespace string
		named              bool
		err                string
	}{
		"nothing": {},
		"an address": {env: map[string]string{"TEMPORAL_ADDRESS": "here:7233"}, address: "here:7233",
			named: true},
		"a profile": {env: map[string]string{"TEMPORAL_CONFIG_FILE": profiles, "TEMPORAL_PROFILE": "prod"},
			address: "temporal.example:7233", namespace: "orders", named: true},
		"a profile without address": {env: map[string]string{"TEMPORAL_CONFIG_FILE": profiles}, namespace: "nearby"},
		"a profile that is not there": {env: map[string]string{"TEMPORAL_CONFIG_FILE": profiles, "TEMPORAL_PROFILE": "test"},
			err: "unable to find profile test"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_PROFILE", "TEMPORAL_API_KEY"} {
				t.Setenv(key, "")
				os.Unsetenv(key)
			}
			t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
			for key, value := range test.env {
				t.Setenv(key, value)
			}
			opts, named, err := Configured(envconfig.ToClientOptionsRequest{})
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.named, named)
			require.Equal(t, test.address, opts.HostPort)
			require.Equal(t, test.namespace, opts.Namespace)
		})
	}
}
