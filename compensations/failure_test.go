package compensations_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
)

func TestATimeoutNamesItsLimitAndAnotherLastError(t *testing.T) {
	limits := compensations.Limits{Attempt: 2 * time.Second}
	const limit = "timed out: an attempt took longer than its limit of 2s"
	for name, c := range map[string]struct {
		last error
		want string
	}{
		"none":     {nil, limit},
		"another":  {errors.New("down"), limit + "; the last error was: down"},
		"the same": {temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), limit},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, limits.Reason(temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, c.last)))
		})
	}
}
