package configuration

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSettledConfigurations(t *testing.T) {
	t.Parallel()
	const heredoc = "resource \"a\" \"js\" {\n  text = <<-E\n    import { x } from \"y\"\n    moved { \"\n  E\n}\n"
	b := Bundle{Files: map[string]BundleFile{
		"same.tf": {Content: []byte(heredoc)},
		"main.tf": {Content: []byte(heredoc + `moved {
  from = a.b
  to   = a.c
}
import {
  to = a.d
  id = "1"
}
removed {
  from = a.e
  lifecycle { destroy = false }
}
resource "a" "f" {
  lifecycle {
    prevent_destroy = true
    ignore_changes  = [x]
  }
}
`)},
		"module/m.tf.json": {
			Content: []byte(
				`{"moved":[{}],"import":{},"resource":[{"a":{"f":[{"n":1.50,"lifecycle":[{"prevent_destroy":true}]}]}}]}`)},
		"notes.txt": {Content: []byte("import { }")},
		"broken.tf": {Content: []byte("moved {")},
	}}
	got := map[string]string{}
	for name, f := range b.Settled().Files {
		got[name] = string(f.Content)
	}
	assert.Equal(t, map[string]string{
		"same.tf": heredoc,
		"main.tf": heredoc + `resource "a" "f" {
  lifecycle {
    ignore_changes = [x]
  }
}
`,
		"module/m.tf.json": `{"resource":[{"a":{"f":[{"lifecycle":[{}],"n":1.50}]}}]}`,
		"notes.txt":        "import { }",
		"broken.tf":        "moved {",
	}, got)
	assert.Contains(t, string(b.Files["main.tf"].Content), "moved {\n  from", "the bundle itself stays as it is")
}
