package activities_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// scene is one where each file, and each command's output, is this text.
type scene string

func (s scene) Target() string                                   { return "/target" }
func (s scene) ReadFile(context.Context, string) ([]byte, error) { return []byte(s), nil }
func (s scene) Run(context.Context, []string) ([]byte, error)    { return []byte(s), errors.New("no") }

func TestASecretCutInTwoByACheckIsStillMasked(t *testing.T) {
	masker := &activities.Masker{}
	masker.Add("correct-horse-battery-staple")
	ctx := activities.WithCheckCommands(activities.WithMasker(t.Context(), masker), []string{"*"})
	for name, c := range map[string]struct {
		check activities.Check
		scene scene
	}{
		"command": {activities.Check{Command: &activities.CommandCheck{Run: []string{"lint"}}}, scene("correct-horse-battery-staple" + strings.Repeat("x", 1990))},
		"json":    {activities.Check{JSON: &activities.JSONCheck{Equals: []byte(`1`)}}, scene(`"correct-horse-battery-staple` + strings.Repeat("x", 190) + `"`)},
	} {
		t.Run(name, func(t *testing.T) {
			err := activities.RunChecks(ctx, []activities.Check{c.check}, activities.Live, activities.Live, c.scene)
			var failed *activities.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, activities.CheckFailed, failed.Type)
			require.Contains(t, failed.Message+failed.Output, "xxx")
			require.NotContains(t, failed.Message+failed.Output, "staple")
		})
	}
}
