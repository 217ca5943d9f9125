package host

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
)

func TestCallsAreWaitedForNoLongerThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, one, other, unused := newCalls(), &worker.SlotPermit{}, &worker.SlotPermit{}, &worker.SlotPermit{}
		began := time.Now()
		c.wait()
		require.Zero(t, time.Since(began), "there is none")

		c.onStart(one)
		c.onStart(other)
		c.onEnd(unused)
		time.AfterFunc(time.Second, func() { c.onEnd(one) })
		time.AfterFunc(2*time.Second, func() { c.onEnd(other) })
		c.wait()
		require.Equal(t, 2*time.Second, time.Since(began))

		c.onStart(one)
		c.wait()
		require.Equal(t, 2*time.Second+settleLimit, time.Since(began))
	})
}
