package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/worker/host"
)

func TestARollbackWindowLongerThanTheNamespaceKeepsTasksIsRefused(t *testing.T) {
	f := newFiles(t, host.RetentionConfig{}, nil)
	keeps, err := host.Retention(t.Context(), f.Client, f.Namespace)
	require.NoError(t, err)
	require.Positive(t, keeps)

	document := f.write(0)
	document["keep"] = (2 * keeps).String()
	err = f.start(document).Get(t.Context(), nil)
	require.ErrorContains(t, err, "nothing was touched")
	require.ErrorContains(t, err, "longer than")
	document["keep"] = keeps.String()
	require.NoError(t, f.start(document).Get(t.Context(), nil))
}
