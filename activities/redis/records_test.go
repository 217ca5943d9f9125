package redis_test

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/keyvalue/keyvaluetest"
)

// A listing costs a few round trips however many records there are, and what is forgotten costs
// none.
func TestAListingTakesFewRoundTrips(t *testing.T) {
	d := newDatabase(t)
	var live []string
	for n := range 450 {
		s := d.exec("SET key " + strconv.Itoa(n))
		s.apply()
		if n < 250 {
			require.NoError(t, s.action.Release(t.Context(), s.entry))
			require.NoError(t, d.world.Records.Forget(t.Context(), s.entry.Token))
			continue
		}
		live = append(live, s.entry.Token)
	}
	asked := func() int {
		for line := range strings.Lines(d.client.Info(t.Context(), "commandstats").Val()) {
			if calls, found := strings.CutPrefix(line, "cmdstat_hmget:calls="); found {
				calls, _, _ = strings.Cut(calls, ",")
				n, err := strconv.Atoi(calls)
				require.NoError(t, err)
				return n
			}
		}
		return 0
	}
	require.NoError(t, d.client.ConfigResetStat(t.Context()).Err())
	var requests atomic.Int64
	d.run("HSET unwind:journal " + live[0] + ":entry damaged")
	direct := d.url
	options, err := client.ParseURL(direct)
	require.NoError(t, err)
	p := keyvaluetest.Proxy{Text: "nothing that is ever sent", Read: func() { requests.Add(1) }}
	d.url = through(t, p, d.server) + "?db=" + strconv.Itoa(options.DB)
	all, problems, err := d.world.Records.Records(t.Context())
	d.url = direct
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.ErrorContains(t, problems[0], "token "+live[0])
	var listed []string
	for _, r := range all {
		listed = append(listed, r.Entry.Token)
	}
	asks := len(live)
	live = live[1:]
	slices.Sort(live)
	slices.Sort(listed)
	require.Equal(t, live, listed)
	require.Equal(t, asks, asked(), "a listing asks of records that are forgotten")
	require.Less(t, int(requests.Load()), len(live)/2, "a listing sends a request for each record")
}
