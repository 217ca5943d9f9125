package terraform

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
)

func TestBuiltin(t *testing.T) {
	terraformtest.Require(t)
	actiontest.Run(t, builtin())
}

func TestOnTop(t *testing.T) {
	terraformtest.Require(t)
	actiontest.Run(t, onTop())
}

const canary = "canary-4711-do-not-print"

// builtin needs nothing but terraform: objects of its own, whose provisioners write files.
func builtin() actiontest.Case {
	return actiontest.Case{
		Name:   "builtin",
		Action: Action,
		Start: func(t testing.TB, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "effects"), 0o755))
			write(t, dir, "conf/main.tf", fmt.Sprintf(`
variable "release" {}
variable "password" {}
resource "terraform_data" "site" {
  count = 2
  input = { dir = %q, release = var.release, password = var.password }
  provisioner "local-exec" { command = "echo ${self.input.release} > ${self.input.dir}/site${count.index}" }
  provisioner "local-exec" {
    when    = destroy
    command = "rm ${self.input.dir}/site${count.index}"
  }
}
output "release" { value = var.release }
output "echo" { value = var.password }
`, filepath.Join(dir, "effects")))
		},
		Open: openBelow,
		With: func(dir string) any {
			return Params{Dir: filepath.Join(dir, "conf"), Vars: map[string]any{"release": "1", "password": canary}}
		},
		Next: func(dir string) any {
			return Params{Dir: filepath.Join(dir, "conf"), Vars: map[string]any{"release": "2", "password": canary}}
		},
		Checks: []activities.Check{
			{When: activities.Staged, Exists: &activities.ExistsCheck{Path: "main.tf"}},
			{Command: &activities.CommandCheck{Run: []string{"ls", "../effects/site1"}}},
		},
		Manifest: manifest,
		Drift: func(t testing.TB, dir string) {
			edit(t, dir, func(s map[string]any) {
				o := s["outputs"].(map[string]any)["release"].(map[string]any)
				o["value"] = o["value"].(string) + "x"
			})
		},
		Secret: canary,
		Anew:   true,
		Redone: func(left, now string) bool { return anonymous(left) == anonymous(now) },
	}
}

var (
	madeID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	backedUp = regexp.MustCompile(`(?m)^conf/terraform\.tfstate\.backup: .*\n?`)
)

// anonymous is a manifest without ids and lineages: a redo makes something else of the same kind.
func anonymous(manifest string) string {
	return backedUp.ReplaceAllString(madeID.ReplaceAllString(manifest, "ID"), "")
}

// onTop has a state from before, made by this very worker: an undo goes back to it.
func onTop() actiontest.Case {
	c := builtin()
	c.Name = "on top"
	c.Brief = true
	start := c.Start
	c.Start = func(t testing.TB, dir string) {
		start(t, dir)
		write(t, dir, "conf/more.tf", `
variable "more" { default = 0 }
resource "terraform_data" "more" {
  count = var.more
  input = var.release
}
`)
		(&bench{TB: t, dir: dir}).openPlain().apply(params(dir, "0", 0))
	}
	c.With = func(dir string) any { return params(dir, "1", 2) }
	c.Next = func(dir string) any { return params(dir, "2", 3) }
	c.Meanwhile = func(t testing.TB, dir string) {
		(&bench{TB: t, dir: dir}).openPlain().apply(params(dir, "meanwhile", 0))
	}
	return c
}

func params(dir, release string, more int) Params {
	return Params{Dir: filepath.Join(dir, "conf"), Vars: map[string]any{"release": release, "password": canary, "more": more}}
}

// things is a configuration with the test provider, whose objects are files in dir/objects.
func things(dir, resources string) string {
	return fmt.Sprintf("terraform {\n  required_providers {\n    fake = { source = %q }\n  }\n}\nprovider \"fake\" { dir = %q }\n%s",
		terraformtest.Source, filepath.Join(dir, "objects"), resources)
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// objects are the files of the test provider, by the names in them.
func objects(t testing.TB, dir string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "objects", "*.json"))
	require.NoError(t, err)
	byName := map[string][]string{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		var o struct{ Name string }
		require.NoError(t, json.Unmarshal(raw, &o), "%s", raw)
		byName[o.Name] = append(byName[o.Name], f)
	}
	return byName
}

// edit changes the state in the configuration's folder by hand, as someone else's terraform would.
func edit(t testing.TB, dir string, change func(map[string]any)) {
	t.Helper()
	path := filepath.Join(dir, "conf", "terraform.tfstate")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var s map[string]any
	require.NoError(t, json.Unmarshal(raw, &s))
	change(s)
	s["serial"] = s["serial"].(float64) + 1
	raw, err = json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o644))
}

// manifest lists the files in the configuration's folder and of the effects, with their contents; of a state only what
// must come back: a state's serial never does.
func manifest(t testing.TB, dir string) string {
	t.Helper()
	var lines []string
	for _, top := range []string{"conf", "effects", "objects"} {
		err := filepath.WalkDir(filepath.Join(dir, top), func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".tfstate") {
				raw = plainState(t, raw)
			}
			rel, _ := filepath.Rel(dir, path)
			lines = append(lines, rel+": "+strings.ReplaceAll(string(raw), "\n", "\\n"))
			return nil
		})
		require.NoError(t, err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func plainState(t testing.TB, raw []byte) []byte {
	t.Helper()
	var s map[string]any
	require.NoError(t, json.Unmarshal(raw, &s), "%s", raw)
	delete(s, "serial")
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	return raw
}
