package etcd_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestADeletionOfMostKeysIsAsked(t *testing.T) {
	keys := map[string]string{}
	for i := range 20 {
		keys[fmt.Sprintf("k/%02d", i)] = "x"
	}
	d := newDatabase(t, keys)
	before := d.dump()
	require.Equal(t, activities.Medium, d.txn(`{"delete": [{"prefix": "k/0"}]}`).plan().Risk, "a half")
	s := d.txn(`{"delete": [{"prefix": "k/0"}, {"key": "k/10"}]}`)
	require.Equal(t, activities.High, s.plan().Risk)
	_, err := s.action().Apply(activities.WithApproval(t.Context(), activities.Approval{}), s.entry, s.with, "")
	require.Equal(t, activities.Asks, activities.TypeOf(err), err)
	require.Equal(t, before, d.dump())
}
