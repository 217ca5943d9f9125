package crash

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestATruceIsOverWhenItsLastHolderEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			tr     truce
			passed bool
		)
		tr.wait(t.Context()) // nobody holds one
		one, other := tr.hold(), tr.hold()
		go func() { tr.wait(t.Context()); passed = true }()
		one()
		synctest.Wait()
		require.False(t, passed)
		other()
		synctest.Wait()
		require.True(t, passed)
	})
}
