// Package salvage puts right what a terraform that was killed or interrupted has left: states that
// were not saved, objects that no state has, and objects that were only half made or destroyed.
package salvage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// UnsavedName is the file in which terraform leaves a state that it could not save.
const UnsavedName = "errored.tfstate"

// UnsavedFolder is the folder of a token to which such states are moved.
func UnsavedFolder(t *journal.Token) string { return filepath.Join(t.Dir(), "unsaved") }

// SettleAll works out, for each run of the forward, which objects it began to make that no state
// has. It does so once for a run, before anything else is done to the state.
func SettleAll(ctx context.Context, ws *workspace.Workspace) (lost []stream.Creation, err error) {
	all, err := run.List(ws.Token)
	if err != nil {
		return nil, err
	}
	var now map[string]string
	for _, r := range all {
		var s run.Supervisor
		if found, err := ws.Token.Read(r.Doc(run.DocProcess), &s); err != nil || !found || s.Turn != 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		if now == nil {
			state, err := ws.PullState(ctx)
			if err != nil {
				return nil, err
			}
			now = state.Managed()
		}
		missing, err := missingCreations(r, now)
		if err != nil {
			return nil, err
		}
		if _, err := ws.Token.Create(r.Doc(run.DocSettled), &missing); err != nil {
			return nil, err
		}
		lost = append(lost, stillLost(missing, now)...)
	}
	return lost, nil
}

// missingCreations are the creations of a run that are not among the objects of the state.
func missingCreations(r run.Run, now map[string]string) ([]stream.Creation, error) {
	said, err := stream.ReadReport(run.Stdout(r.Folder()))
	if err != nil {
		return nil, err
	}
	missing := []stream.Creation{}
	for _, c := range said.Created {
		if _, there := now[c.Address]; !there {
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// stillLost are those of missing that have not been adopted since.
func stillLost(missing []stream.Creation, now map[string]string) []stream.Creation {
	return slices.DeleteFunc(slices.Clone(missing), func(c stream.Creation) bool {
		_, there := now[c.Address]
		return c.Fate == stream.Completed && there
	})
}

// UnknowableAddresses are the addresses whose objects may or may not exist.
func UnknowableAddresses(lost []stream.Creation) []string {
	return append(byFate(lost, stream.InFlight), byFate(lost, stream.Completed)...)
}

// byFate are the addresses of the creations that got that far.
func byFate(cs []stream.Creation, fate stream.CreationFate) []string {
	var all []string
	for _, c := range cs {
		if c.Fate == fate {
			all = append(all, c.Address)
		}
	}
	return all
}

// MoveUnsaved moves states that terraform could not save out of the working copies, so that these
// can be made again.
func MoveUnsaved(t *journal.Token) ([]string, error) {
	kept := UnsavedFolder(t)
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(workspace.Folder(t, filepath.Join("*", UnsavedName)))
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if err := os.Rename(f, filepath.Join(kept, filepath.Base(filepath.Dir(f)))); err != nil {
			return nil, err
		}
	}
	return filepath.Glob(filepath.Join(kept, "*"))
}

// PushUnsaved pushes states that terraform could not save, if they are newer than the current one.
// It never forces.
func PushUnsaved(ctx context.Context, ws *workspace.Workspace, files []string) error {
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		saved, err := state.ParseHidden(ctx, raw)
		if err != nil {
			return err
		}
		now, err := ws.PullState(ctx)
		if err != nil {
			return err
		}
		if !now.Exists() || now.Lineage == saved.Lineage && now.Serial < saved.Serial {
			if err := ws.PushState(ctx, raw); err != nil {
				return err
			}
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// AdoptCompleted imports what is known to have been made, and returns what stays lost.
func AdoptCompleted(ctx context.Context, ws *workspace.Workspace, lost []stream.Creation) (still []stream.Creation,
	err error) {
	for _, c := range lost {
		if c.Fate == stream.Completed {
			adopted, err := Import(ctx, ws, c.Address, c.ID)
			if err != nil {
				return nil, err
			}
			if adopted {
				continue
			}
		}
		still = append(still, c)
	}
	return still, nil
}

// IsTornByKill reports whether a state of no bytes is what a terraform of this very step has left
// when it was killed.
func IsTornByKill(ws *workspace.Workspace, now *state.State) (bool, error) {
	if now.Exists() || !ws.HasStateFile() {
		return false, nil
	}
	all, err := run.List(ws.Token)
	for _, r := range all {
		var begun run.Supervisor
		var ended run.Exit
		registered, berr := ws.Token.Read(r.Doc(run.DocProcess), &begun)
		over, oerr := ws.Token.Read(r.Doc(run.DocExit), &ended)
		if err = errors.Join(err, berr, oerr); err == nil && registered && !over {
			return true, nil
		}
	}
	return false, err
}

// Import imports an object that no state has, if it is still there. It returns false if the
// provider cannot import it.
func Import(ctx context.Context, ws *workspace.Workspace, address, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	said, err := ws.RunChange(ctx, "import", func(run.Order) error {
		options := []tfexec.ImportOption{tfexec.LockTimeout(ws.LockTimeout.String())}
		if ws.StateFile != "" {
			options = append(options, tfexec.DisableBackup())
		}
		return ws.CLI.Import(ctx, address, id, options...)
	})
	switch {
	case err == nil, strings.Contains(said.Failure(), "non-existent remote object"): // it is gone already
		return true, nil
	case ctx.Err() != nil, activities.TypeOf(err) == activities.Fenced, workspace.LockHint(said) != "":
		return false, err
	}
	return false, nil
}

// FindDoubt says what a killed run has left that only an attempt or an undo can settle; empty if
// nothing.
func FindDoubt(ws *workspace.Workspace, now *state.State) (string, error) {
	for _, where := range []string{workspace.Folder(ws.Token, filepath.Join("*", UnsavedName)),
		filepath.Join(UnsavedFolder(ws.Token), "*")} {
		if unsaved, err := filepath.Glob(where); err != nil || len(unsaved) > 0 {
			return "terraform could not save its last state, which is still to be pushed", err
		}
	}
	all, err := run.List(ws.Token)
	if err != nil {
		return "", err
	}
	objects := now.Managed()
	var lost []stream.Creation
	for _, r := range all {
		var s run.Supervisor
		if found, err := ws.Token.Read(r.Doc(run.DocProcess), &s); err != nil {
			return "", err
		} else if !found || s.Turn != 0 {
			continue
		}
		var missing []stream.Creation
		found, err := ws.Token.Read(r.Doc(run.DocSettled), &missing)
		if err == nil && !found {
			missing, err = missingCreations(r, objects)
		}
		if err != nil {
			return "", err
		}
		lost = append(lost, stillLost(missing, objects)...)
	}
	if unknown := UnknowableAddresses(lost); len(unknown) > 0 {
		return fmt.Sprintf("terraform was killed while it made %s: whether they exist cannot be known",
			strings.Join(unknown, ", ")), nil
	}
	return "", nil
}
