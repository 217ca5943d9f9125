package redis_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestADeletionOfMostKeysIsAsked(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, fmt.Sprintf("SET k%d x", i))
	}
	d := newDatabase(t, lines...)
	before := d.dump()
	for n, risk := range map[int]activities.Risk{10: activities.Medium, 11: activities.High} {
		command := "DEL"
		for i := range n {
			command += fmt.Sprintf(" k%d", i)
		}
		s := d.exec(command)
		require.Equal(t, risk, s.plan().Risk, n)
		if risk == activities.High {
			_, err := s.action.Apply(activities.WithApproval(t.Context(), activities.Approval{}), s.entry, s.with, "")
			require.Equal(t, activities.Asks, activities.TypeOf(err), err)
			require.Equal(t, before, d.dump())
		}
	}
}
