package terraform

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestPreflightLooksForTheProgramAndTheFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(root, "out")))
	for name, c := range map[string]struct {
		dir     string
		without bool // terraform
		later   []string
		want    string
		current string
	}{
		"fine":     {dir: root},
		"relative": {dir: "infra", want: "is not an absolute path"},
		"outside":  {dir: "/etc", want: "dir: /etc is outside the folders that this worker allows: " + root},
		"by a symlink": {dir: filepath.Join(root, "out"), want: "leads to /etc, which is outside",
			current: "file:" + filepath.Join(root, "out")},
		"not there": {dir: filepath.Join(root, "none"), want: "no such file",
			current: "file:" + filepath.Join(root, "none")},
		"later":         {later: []string{"dir"}},
		"no terraform":  {dir: root, without: true, want: "this worker has no terraform"},
		"neither there": {dir: "/etc", without: true, want: "this worker has no terraform"},
	} {
		w := &world{Config: Config{Roots: []string{root}, Terraform: "terraform"}}
		if c.without {
			w.Terraform = ""
		}
		with, err := json.Marshal(Params{Dir: c.dir})
		require.NoError(t, err)
		err = (&applyAction{w}).Preflight(t.Context(), activities.Outlook{Step: activities.Step{With: with}, Later: c.later})
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.want, name)
		var refused *activities.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, activities.Refused, refused.Type, name)
		require.Equal(t, c.current, refused.Current, name)
	}
}

func TestWhatAConfigurationReadsIsTouched(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "main.tf", `locals { settings = jsondecode(file("/etc/app/settings.json")) }`)
	with, err := json.Marshal(Params{Dir: root})
	require.NoError(t, err)
	w := &world{Config: Config{Roots: []string{root}, Terraform: "terraform"}}
	touches, err := (&applyAction{w}).Touches(t.Context(), activities.Outlook{Step: activities.Step{With: with}})
	require.NoError(t, err)
	require.Contains(t, touches, activities.Touch{Path: "/etc/app/settings.json", Reads: true})
}
