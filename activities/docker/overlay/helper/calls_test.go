package helper

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/calltest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// outcomes makes the calls in a box with layers over it, and returns what each has come to.
func outcomes(t *testing.T, layers int) (came []string) {
	t.Helper()
	k := keepIn(t, boxtest.New(t, boxtest.Sleeps))
	k.Inside(func() error { return calltest.MakeObjects("/srv") })
	for n := range layers {
		k.must(Take, name(strconv.Itoa(n)))
		k.Inside(func() error { return os.WriteFile("/srv/step", []byte(strconv.Itoa(n)), 0o600) })
	}
	if layers > 0 {
		k.must(Take, name("last"))
	}
	k.Inside(func() (err error) {
		came, err = calltest.Call("/srv")
		return err
	})
	return came
}

func TestSystemCallsDoInLayersWhatTheyDoWithoutButForWhatPlansTell(t *testing.T) {
	t.Parallel()
	all := calltest.Cases()
	require.Greater(t, len(all), 900)
	bare := outcomes(t, 0)
	for _, layers := range []int{1, 50} {
		t.Run(strconv.Itoa(layers)+" deep", func(t *testing.T) {
			if layers > 1 {
				testrun.Sampled(t)
			}
			told := 0
			for i, came := range outcomes(t, layers) {
				if calltest.Plain(came) == calltest.Plain(bare[i]) {
					continue
				}
				if all[i].IsTold(bare[i], came, true) {
					told++
					continue
				}
				assert.Equal(t, bare[i], came, "%s", all[i])
			}
			assert.NotZero(t, told)
			t.Logf("%d of %d calls differ as plans tell", told, len(all))
		})
	}
}
