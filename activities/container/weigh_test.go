package container_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestLayersCountAmongWhatRecordsTake(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	first, _ := s.did(t, b, "cat /bin/sh /bin/sh >/big")
	second, _ := s.did(t, b, "echo small >/small")
	records, problems, err := s.world.Records.Records(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	takes := map[string]int64{}
	for _, r := range records {
		takes[r.Entry.Token] = r.Bytes
	}
	assert.Less(t, takes[first.Token], int64(1<<20))
	assert.Greater(t, takes[second.Token], int64(1<<20), "the second one's checkpoint holds what the first has written")
}
