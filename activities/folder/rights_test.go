package folder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

func TestWhatTheWorkerCouldNotPutBackIsRefused(t *testing.T) {
	mine := snapshot.Entry{Kind: snapshot.File, UID: 7, GID: 8}
	for why, change := range map[string]func(e *snapshot.Entry){
		"":                    func(e *snapshot.Entry) { e.GID = 9 },
		"belongs to user 0":   func(e *snapshot.Entry) { e.UID = 0 },
		"belongs to group 10": func(e *snapshot.Entry) { e.GID = 10 },
		"is a folder that its owner may not change": func(e *snapshot.Entry) { e.Kind, e.Mode = snapshot.Folder, 0o555 },
		"is a device":                           func(e *snapshot.Entry) { e.Kind = snapshot.Block },
		"has attributes that only root can set": func(e *snapshot.Entry) { e.Attributes = "\"security.capability\"=01\n" },
	} {
		e := mine
		change(&e)
		c := snapshot.Content{"/it": e, "/.unwind": {Kind: snapshot.Left}}
		err := rights{7, []int{8, 9}}.check(c)
		if why == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "/it "+why)
		}
		require.NoError(t, rights{user: 0}.check(c))
	}
}
