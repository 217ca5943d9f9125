package containertest

import (
	"sort"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"

	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) { Main(m) }

func TestFilesAreSeenAsTheEngineTellsThem(t *testing.T) {
	t.Parallel()
	b := Start(t, func(_ *container.Config, h *container.HostConfig, _ *network.NetworkingConfig) {
		h.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: "/vol"}}
	})
	b.Run(t, "mkdir -p /srv/d; echo x >/srv/a; cp /srv/a /vol/v; chmod 4750 /srv/d; touch /tmp/t")
	b.Put(t, "/srv", map[string]string{"p/q": "q\n"})
	testrun.NeedRoot(t, "what a container holds")
	seen, ok := walked(t, b)
	assert.True(t, ok)
	told := copied(t, b)
	sort.Strings(seen)
	sort.Strings(told)
	assert.Equal(t, strings.Join(told, "\n"), strings.Join(seen, "\n"))
	assert.Contains(t, strings.Join(seen, "\n"), "vol/v ")
}
