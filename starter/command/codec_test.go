package command

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
)

// newCodecDesk is a desk of which the worker has a codec that makes payloads unreadable to others,
// and starters the address of its codec server. It has a Temporal server of its own: others cannot
// list what is on it.
func newCodecDesk(t *testing.T) *desk {
	codec := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	server, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	options := server.ClientOptions()
	options.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
	c, err := client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	t.Setenv("TEMPORAL_CODEC_ENDPOINT", servertest.Codec(t, codec, "the key"))
	t.Setenv("TEMPORAL_CODEC_AUTH", "the key")
	d := newLoneDeskOn(t, server, c)
	d.stopWorker()
	d.converter = options.DataConverter
	d.startWorker()
	return d
}

func TestCommandsWorkThroughACodec(t *testing.T) {
	d := newCodecDesk(t)
	id := t.Name()
	endpoint := os.Getenv("TEMPORAL_CODEC_ENDPOINT")
	without := func(args ...string) typed { // as where nobody has said that there is a codec
		d.Helper()
		require.NoError(d, errors.Join(os.Unsetenv("TEMPORAL_CODEC_ENDPOINT"), os.Unsetenv("TEMPORAL_CODEC_AUTH")))
		defer t.Setenv("TEMPORAL_CODEC_AUTH", "the key")
		defer t.Setenv("TEMPORAL_CODEC_ENDPOINT", endpoint)
		return d.do(args...)
	}
	refused := func(args ...string) {
		d.Helper()
		r := without(args...)
		require.NotEqual(d, statusOK, r.status, "%v: %s", args, r.out)
		require.Contains(d, r.err, "TEMPORAL_CODEC_ENDPOINT", "%v: %s", args, r.out)
		require.Empty(d, r.out)
	}

	require.Contains(t, d.ok("run", d.file(gated), "--id", id), "starter approve "+id+" STEP")
	d.until(id, atGate)
	require.Contains(t, d.ok("show", id), `set b from "" to "y"`)
	refused("show", id)
	refused("approve", id, "two", "--yes")
	require.Contains(t, without("list", "--limit", "1000").out, id, "what is listed is no payload")
	d.ok("approve", id, "two", "--yes")
	require.Contains(t, d.ok("watch", id), "committed: every step is done and stays")
	require.Equal(t, [2]string{"x", "y"}, d.values())
	refused("show", id)
	refused("rollback", id)
	require.Equal(t, [2]string{"x", "y"}, d.values())
	d.ok("rollback", id, "--watch")
	require.Equal(t, [2]string{}, d.values())
	// when it is listed
	require.Eventually(t, func() bool { return strings.Contains(d.ok("show", id), " · committed, rolled back\n") },
		waitFor, tick)
	require.Contains(t, d.ok("list", "--limit", "1000"), "Ship it!  committed, rolled back")
	refused("list", "--limit", "1000")

	t.Setenv("TEMPORAL_CODEC_AUTH", "another key")
	r := d.do("show", id)
	require.NotEqual(t, statusOK, r.status)
	require.Contains(t, r.err, "TEMPORAL_CODEC_AUTH")

	require.NoError(t, os.Unsetenv("TEMPORAL_CODEC_ENDPOINT"))
	r = d.do("show", id)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "TEMPORAL_CODEC_ENDPOINT is not set")
}
