package stack

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// TestAReverseLayerShowsWhatWasThereBefore looks before the layers are written, when some of them
// are, and when all are.
func TestAReverseLayerShowsWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.ForEverything()
	b.Do("cd /srv; mkdir -p deep/er/est gone/x; echo 1 >deep/er/est/1; echo 2 >deep/er/2; ln deep/er/2 deep/two; echo " +
		"s >gone/x/s; echo f >folder; touch -d @7.5 deep/er deep")
	before := b.Files()
	b.show(t, 1)
	b.ChangeEverything()
	b.show(t, 2, 1)
	b.Do("cd /srv; rm -r c; echo again >c; rm out; mkdir out; echo in >out/sh; echo new >deep/er/new; rm -r gone; rm " +
		"folder; mkdir folder; touch folder/x")
	one := b.Files()
	b.show(t, 3, 1, 2)
	b.Do("cd /srv; rm -r deep; mkdir -p deep/er; echo other >deep/er/2; mkdir gone; rm -r folder; rm out/sh; touch -d " +
		"@1.123456789 .")
	after := b.Files()
	b.show(t, 4, 1, 2, 3)
	require.NoError(t, b.Base().Reverse(b.layers, []int{1, 2, 3}, 5))
	b.show(t, 6, 5)
	assert.Equal(t, before, b.Files(), "with nothing written")
	for i, written := range [][]int{{1}, {1, 2}, {1, 2, 3}, {1, 2, 3}} {
		require.NoError(t, b.Base().Flatten(b.layers, written, func(string) bool { return false }))
		b.show(t, 7+3*i, 5)
		assert.Equal(t, before, b.Files(), "with layers %v written", written)
		b.show(t, 8+3*i, 5, 1, 2)
		assert.Equal(t, one, b.Files(), "with layers %v written", written)
		b.show(t, 9+3*i, 5, 1, 2, 3)
		assert.Equal(t, after, b.Files(), "with layers %v written", written)
	}
	require.NoError(t, b.RemoveTop())
	assert.Equal(t, after, b.Files())

	// What a layer takes back can be taken back as well.
	require.NoError(t, b.Base().Reverse(b.layers, []int{5}, 30))
	require.NoError(t, b.Base().Flatten(b.layers, []int{5}, func(string) bool { return false }))
	assert.Equal(t, before, b.Files())
	b.show(t, 31, 30)
	assert.Equal(t, after, b.Files())
	b.show(t, 32, 30, 5)
	assert.Equal(t, before, b.Files())
}

func TestAReverseLayerCostsWhatIsChanged(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Do("cd /srv; mkdir big; for i in 1 2 3; do yes $i | head -c 1000000 >big/$i; done")
	b.show(t, 1)
	b.Do("cd /srv; echo x >big/1; yes $i | head -c 1000000 >big/4")
	b.show(t, 2, 1)
	require.NoError(t, b.Base().Reverse(b.layers, []int{1}, 3))
	var kept []string
	changes, err := layer.Changes(b.layers, []int{3}, func(string) bool { return false })
	require.NoError(t, err)
	for _, c := range changes {
		kept = append(kept, string(c.Kind)+c.Path)
	}
	assert.Equal(t, []string{"d/srv", "d/srv/big", "f/srv/big/1", "x/srv/big/4"}, kept)
	assert.FileExists(t, filepath.Join(layer.Content(b.layers, 3), "srv/big/1"))
}
