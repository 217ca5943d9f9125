package terraformtest_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
)

func TestMain(m *testing.M) {
	terraform.Attend()
	code := actiontest.Main(m, builtin(), onTop(), restore(), keep())
	terraformtest.RemoveFront()
	os.Exit(code)
}

func TestBuiltin(t *testing.T) {
	terraformtest.Require(t)
	actiontest.Run(t, builtin())
}

func TestOnTop(t *testing.T) {
	terraformtest.Require(t)
	actiontest.Run(t, onTop())
}

func TestRestore(t *testing.T) {
	terraformtest.Require(t)
	actiontest.Run(t, restore())
}

func TestCheckpoint(t *testing.T) {
	terraformtest.Require(t)
	actiontest.Run(t, keep())
}

// open opens the world of a test below dir the way a worker would.
func open(dir string) (activities.World, error) {
	return terraform.New(terraform.Config{State: filepath.Join(dir, "worker"),
		Roots: []string{filepath.Join(dir, "conf"), filepath.Join(dir, "other")}})
}

const canary = "canary-4711-do-not-print"

// builtin needs nothing but terraform: objects of its own, whose provisioners write files.
func builtin() actiontest.Case {
	return actiontest.Case{
		Name:   "builtin",
		Action: terraform.Action,
		Start: func(t testing.TB, dir string) {
			terraformtest.PlainFront(t, filepath.Join(dir, "worker"))
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
		Open: open,
		With: func(dir string) any {
			return terraform.Params{Dir: filepath.Join(dir, "conf"), Vars: map[string]any{"release": "1", "password": canary}}
		},
		Next: func(dir string) any {
			return terraform.Params{Dir: filepath.Join(dir, "conf"), Vars: map[string]any{"release": "2", "password": canary}}
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
		Secret:    canary,
		Undone:    activities.Compensated, // what its provisioners do is not looked at
		Anew:      true,
		Sample:    1,
		EitherWay: true,
		// A call starts terraform about five times, beside the tests of another package.
		Patience: 3 * time.Minute,
		Redone:   func(left, now string) bool { return anonymous(left) == anonymous(now) },
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
	c.Undone = activities.Restored // no provisioner runs
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
		apply(t, dir, params(dir, "0", 0))
	}
	c.With = func(dir string) any { return params(dir, "1", 2) }
	c.Next = func(dir string) any { return params(dir, "2", 3) }
	c.Meanwhile = func(t testing.TB, dir string) {
		apply(t, dir, params(dir, "meanwhile", 0))
	}
	return c
}

// restore goes back over a change in place, whose undo leaves nothing; the other checkpoint differs in
// a file only.
func restore() actiontest.Case {
	return actiontest.Case{
		Name: "restore", Action: terraform.RestoreAction,
		Start: func(t testing.TB, dir string) {
			terraformtest.PlainFront(t, filepath.Join(dir, "worker"))
			plain := terraform.Params{Dir: filepath.Join(dir, "conf")}
			configure(t, dir, "conf", "1", "")
			write(t, dir, "conf/old/gone.tf", "")
			apply(t, dir, plain)
			carryOut(t, dir, terraform.KeepAction, tokenOf(dir, "one"), plain)
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "conf", "old")))
			configure(t, dir, "conf", "2", "")
			apply(t, dir, plain)
			carryOut(t, dir, terraform.KeepAction, tokenOf(dir, "two"), plain)
			configure(t, dir, "conf", "2", "# by the agent")
			write(t, dir, "conf/new/new.tf", "")
		},
		Open:     open,
		With:     func(dir string) any { return backTo(dir, "one") },
		Next:     func(dir string) any { return backTo(dir, "two") },
		Manifest: manifest,
		Drift: func(t testing.TB, dir string) {
			raw, err := os.ReadFile(filepath.Join(dir, "conf", "main.tf"))
			require.NoError(t, err)
			write(t, dir, "conf/main.tf", string(raw)+"# by hand\n")
		},
		Meanwhile: func(t testing.TB, dir string) { configure(t, dir, "conf", "3", "") },
		Anew:      true, Brief: true, Sample: 1, EitherWay: true, Patience: 3 * time.Minute,
		Own: []string{"terraform.restore:placed", "terraform.restore:fenced", "terraform.restore:files-back"},
	}
}

func keep() actiontest.Case {
	return actiontest.Case{
		Name: "checkpoint", Action: terraform.KeepAction, Lapses: true,
		Start: func(t testing.TB, dir string) {
			terraformtest.PlainFront(t, filepath.Join(dir, "worker"))
			configure(t, dir, "conf", "1", "")
			configure(t, dir, "other", "2", "")
			apply(t, dir, terraform.Params{Dir: filepath.Join(dir, "conf")})
		},
		Open: open,
		With: func(dir string) any { return terraform.Params{Dir: filepath.Join(dir, "conf")} },
		Next: func(dir string) any { return terraform.Params{Dir: filepath.Join(dir, "other")} },
		Manifest: func(t testing.TB, dir string) string {
			kept, err := filepath.Glob(filepath.Join(dir, "worker", "kept", "*"))
			require.NoError(t, err)
			return fmt.Sprint(manifest(t, dir), len(kept))
		},
		Anew: true, Brief: true, Sample: 1, EitherWay: true, Patience: 3 * time.Minute,
		Own: []string{"terraform.checkpoint:recorded", "terraform.checkpoint:kept", "terraform.checkpoint:applied",
			"terraform.checkpoint:closed", "terraform.checkpoint:dropped"},
	}
}

// configure writes a configuration whose objects are changed in place.
func configure(t testing.TB, dir, folder, release, comment string) {
	write(t, dir, folder+"/main.tf", fmt.Sprintf(`
resource "terraform_data" "site" {
  count = 2
  input = %q
}
output "release" { value = %[1]q }
%s
`, release, comment))
}

func tokenOf(dir, name string) string { return activities.NewToken(dir, name, 0) }

func backTo(dir, name string) map[string]any {
	return map[string]any{"dir": filepath.Join(dir, "conf"), "checkpoint": "cp-" + tokenOf(dir, name)}
}

// apply applies a step of nobody's test.
func apply(t testing.TB, dir string, p terraform.Params) {
	t.Helper()
	carryOut(t, dir, terraform.Action, activities.NewToken(rand.Text(), "infra", 1), p)
}

func carryOut(t testing.TB, dir, action, token string, with any) {
	t.Helper()
	w, err := open(dir)
	require.NoError(t, err)
	place, err := w.Journal(t.Context())
	require.NoError(t, err)
	raw, err := json.Marshal(with)
	require.NoError(t, err)
	i := slices.IndexFunc(w.Actions, func(a activities.Action) bool { return a.Spec().Name == action })
	_, err = w.Actions[i].Apply(t.Context(), activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "infra", Action: action, UndoType: action + ".undo",
		Token: token, Place: activities.Place{Queue: "q", Journal: place},
	}, activities.Step{ID: "infra", With: raw}, "")
	require.NoError(t, err)
}

func params(dir, release string, more int) terraform.Params {
	return terraform.Params{Dir: filepath.Join(dir, "conf"),
		Vars: map[string]any{"release": release, "password": canary, "more": more}}
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
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

// manifest lists the files in the configuration's folder and of the effects, with their contents;
// of a state only what must come back: a state's serial never does.
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
