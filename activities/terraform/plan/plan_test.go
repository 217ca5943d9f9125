package plan

import (
	"testing"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/stretchr/testify/assert"
)

func TestDataSourcesThatDoSomethingAreNamed(t *testing.T) {
	source := func(kind string) *tfjson.ConfigResource {
		return &tfjson.ConfigResource{Address: "data." + kind + ".x", Mode: tfjson.DataResourceMode, Type: kind, Name: "x"}
	}
	shown := &tfjson.Plan{Config: &tfjson.Config{RootModule: &tfjson.ConfigModule{
		Resources: []*tfjson.ConfigResource{source("external"), source("local_file")},
		ModuleCalls: map[string]*tfjson.ModuleCall{
			"m": {Module: &tfjson.ConfigModule{Resources: []*tfjson.ConfigResource{source("http")}}}},
	}}}
	want := []string{
		"data.external.x runs a program on the worker's host, also to make this plan",
		"module.m.data.http.x sends a request, also to make this plan",
	}
	described, sources := FindPrograms(shown)
	assert.Equal(t, want, described)
	assert.Equal(t, want, sources)
}
