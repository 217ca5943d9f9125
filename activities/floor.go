package activities

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Level says which changes a person must approve.
type Level string

// The levels of a floor, the stricter last.
const (
	FromHigh Level = "high"   // those of high risk
	Always   Level = "always" // all
)

// Levels are all levels, the strictest last.
var Levels = []Level{FromHigh, Always}

// Floor is a level that no task file and no agent goes below, and the pattern in the worker's
// config that sets it.
type Floor struct {
	Level   Level  `json:"level"`
	Pattern string `json:"pattern"`
}

// demand says why a floor has a person approve the change; empty if it does not.
func (f Floor) demand(c Change) string {
	if f.Level == Always || f.Level == FromHigh && c.danger() != "" {
		return fmt.Sprintf("the worker's config says gates: {%q: %s}", f.Pattern, f.Level)
	}
	return ""
}

// Floors are levels by pattern: the name of an action, "world.*" for all actions of a world that
// change something, or "*" for those of all worlds.
type Floors map[string]Level

// of returns the floor of an action. Of several patterns that match, the strictest counts.
func (f Floors) of(s Spec) Floor {
	var floor Floor
	for _, pattern := range slices.Sorted(maps.Keys(f)) {
		if MatchesAction(pattern, s) && slices.Index(Levels, f[pattern]) > slices.Index(Levels, floor.Level) {
			floor = Floor{f[pattern], pattern}
		}
	}
	return floor
}

// MatchesAction reports whether a pattern of Floors means an action. One that only reads has to be
// named.
func MatchesAction(pattern string, s Spec) bool {
	prefix, isWild := strings.CutSuffix(pattern, "*")
	if !isWild {
		return pattern == s.Name
	}
	return !s.ReadOnly && (prefix == "" || prefix == WorldOf(s.Name)+".")
}
