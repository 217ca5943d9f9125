package task

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestFollowTouched(t *testing.T) {
	type touched = activities.Touched
	changes := func(names ...string) touched { return touched{Changes: names} }
	reads := func(names ...string) touched { return touched{Reads: names} }
	for what, c := range map[string]struct {
		touched []touched
		needs   map[string][]string // that the task file gives
		want    [][]string
	}{
		"one name": {[]touched{changes("/a"), changes("container:1"), changes("/b", "container:1")}, nil,
			[][]string{nil, nil, {"1"}}},
		"a folder": {[]touched{changes("/a/b"), changes("/a"), changes("/a/c"), changes("/ab")}, nil,
			[][]string{nil, {"0"}, {"1"}, nil}},
		"all of it": {[]touched{changes("/a"), changes("/"), changes("/b")}, nil,
			[][]string{nil, {"0"}, {"1"}}},
		"readers": {[]touched{changes("/a"), reads("/a"), reads("/a"), changes("/a"), reads("/a")}, nil,
			[][]string{nil, {"0"}, {"0"}, {"1", "2"}, {"3"}}},
		"a reader of a folder": {[]touched{reads("/a"), changes("/a/b"), changes("/a/c")}, nil,
			[][]string{nil, {"0"}, {"0"}}},
		"a step with both": {[]touched{changes("/a", "/a/b"),
			{Changes: []string{"/c"}, Reads: []string{"/c", "/a"}}}, nil, [][]string{nil, {"0"}}},
		"what is needed already": {[]touched{changes("/a"), {}, changes("/a")},
			map[string][]string{"1": {"0"}, "2": {"1"}}, [][]string{nil, {"0"}, {"1"}}},
		"what follows is left out": {[]touched{changes("/a"), changes("/b"), changes("/a", "/b")},
			map[string][]string{"1": {"0"}, "2": {"0"}}, [][]string{nil, {"0"}, {"1"}}},
		"nothing is known of steps": {nil, map[string][]string{"1": {"0"}}, [][]string{nil, {"0"}}},
	} {
		t.Run(what, func(t *testing.T) {
			compiled := Compiled{}
			for i := range c.want {
				id := string(rune('0' + i))
				compiled.Steps = append(compiled.Steps, Step{ID: id, Needs: c.needs[id]})
			}
			for i := range c.touched {
				c.touched[i].Step = compiled.Steps[i].ID
			}
			compiled.FollowTouched(c.touched)
			assert.Equal(t, c.want, needsOf(&compiled))
		})
	}
	elsewhere := Compiled{Steps: []Step{{ID: "0"}, {ID: "1", Place: activities.Place{Queue: "other"}}}}
	elsewhere.FollowTouched([]touched{{Step: "0", Changes: []string{"/a"}}, {Step: "1", Changes: []string{"/a"}}})
	assert.Empty(t, elsewhere.Steps[1].Needs)
}
