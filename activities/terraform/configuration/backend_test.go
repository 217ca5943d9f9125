package configuration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two folders have a name in common exactly if they keep their state in one place.
func TestOneStateHasOneName(t *testing.T) {
	t.Parallel()
	const s3 = `terraform {
  backend "s3" {
    bucket = "b" # not "other"
    key    = "k"
    assume_role = { role_arn = "}" }
  }
}`
	type folder struct {
		file, content string
		settings      map[string]string
	}
	for name, c := range map[string]struct {
		a, b folder
		same bool
	}{
		"the same text": {folder{"a.tf", s3, nil}, folder{"b.tf", s3, nil}, true},
		"settings of the step": {folder{"a.tf", s3, nil},
			folder{"a.tf", `terraform { backend "s3" {} }`, map[string]string{"bucket": "b", "key": "k", "secret_key": "x"}},
			true},
		"in JSON": {folder{"a.tf", s3, nil},
			folder{"a.tf.json", `{"terraform": [{"backend": {"s3": {"key": "k", "bucket": "b"}}}]}`, nil}, true},
		"another key": {folder{"a.tf", s3, nil}, folder{"a.tf", s3, map[string]string{"key": "other"}}, false},
		"another kind": {folder{"a.tf", `terraform { backend "gcs" { bucket = "b" } }`, nil}, folder{"a.tf", s3, nil},
			false},
		"another user": {
			folder{"a.tf", `terraform { backend "pg" { conn_str = "postgres://a:b@db/x" } }`, nil},
			folder{"a.tf", `terraform { backend "pg" { conn_str = "postgres://c:d@db/x" } }`, nil}, true,
		},
		"another workspace of a cloud": {
			folder{"a.tf", `terraform { cloud { workspaces { name = "a" } } }`, nil},
			folder{"a.tf", `terraform { cloud { workspaces { name = "b" } } }`, nil}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.same,
				nameOf(t, c.a.file, c.a.content, c.a.settings) == nameOf(t, c.b.file, c.b.content, c.b.settings))
		})
	}
}

func nameOf(t *testing.T, file, content string, settings map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	found, err := Backends(dir, settings)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Empty(t, found[0].StateFile())
	return found[0].Name()
}

func TestBackendsThatAreNone(t *testing.T) {
	t.Parallel()
	for content, files := range map[string][]string{
		`resource "x" "backend" {}`:                                       nil,
		"# terraform { backend \"s3\" {} }\n/* backend \"s3\" {\n} */":    nil,
		`terraform { backend "local" {} }`:                                {StateName},
		`terraform { backend "local" { path = "/srv/states/a.tfstate" }}`: {"/srv/states/a.tfstate"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.tf"), []byte(content), 0o600))
		found, err := Backends(dir, nil)
		require.NoError(t, err)
		var got []string
		for _, b := range found {
			got = append(got, b.StateFile())
		}
		assert.Equal(t, files, got, content)
	}
}
