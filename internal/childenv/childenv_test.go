package childenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProgramGetsWhatItNeedsAndWhatIsNamed(t *testing.T) {
	for _, name := range names {
		t.Setenv(name, "")
	}
	t.Setenv("PATH", "/bin")
	t.Setenv("STRIPE_KEY", "sk_live_4711")
	t.Setenv("AWS_PROFILE", "staging")
	env := Minimal("AWS_PROFILE", "NOT_SET")
	require.Equal(t, "/bin", env["PATH"])
	require.Equal(t, "staging", env["AWS_PROFILE"])
	require.NotContains(t, env, "STRIPE_KEY")
	require.NotContains(t, env, "NOT_SET")
	require.Equal(t, []string{"A=1", "B=2"}, List(map[string]string{"B": "2", "A": "1"}))
}
