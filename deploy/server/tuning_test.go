package main

import (
	"os"
	"testing"

	"go.temporal.io/server/common/dynamicconfig"
)

// The compose file's server must have the same tuning.
func TestComposeIsTunedAlike(t *testing.T) {
	raw, err := os.ReadFile("../compose/dynamicconfig/unwind.yaml")
	must(t, err)
	file := dynamicconfig.LoadYamlFile(raw)
	must(t, file.Err())
	if len(file.Warnings) > 0 {
		t.Error(file.Warnings)
	}
	if len(file.Map) != 4 {
		t.Errorf("%d settings, not 4", len(file.Map))
	}
	for key, values := range file.Map {
		if want := tuning()[key]; len(values) != 1 || values[0].Value != want {
			t.Errorf("%s is %v, not %v", key, values, want)
		}
	}
}
