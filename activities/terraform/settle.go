package terraform

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

const (
	// errandName is the file in which terraform leaves a state that it could not save.
	errandName = "errored.tfstate"
	// errandsName is the folder of a token to which such states are moved.
	errandsName = "errands"
)

// finishedRun is a run and its end.
type finishedRun struct {
	run
	runEnd
	what string
}

// appliedAll reports whether the run has applied its whole plan.
func (o *finishedRun) appliedAll() bool {
	return o != nil && o.Code == 0 && !o.Killed && (o.what == whatApply || o.what == "")
}

// awaitAll waits for a token's runs, and returns the last run of the forward that started. With interrupt it interrupts
// them.
func (w *world) awaitAll(ctx context.Context, t *journal.Token, interrupt bool) (last *finishedRun, err error) {
	all, err := listRuns(t)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		end, err := w.awaitRun(ctx, r, interrupt)
		if err != nil {
			return nil, err
		}
		var s supervisorRecord
		if _, err := t.Read(r.doc(docProcess), &s); err != nil {
			return nil, err
		}
		if !end.Never && end.Refused == "" && s.Turn == 0 {
			last = &finishedRun{r, end, s.What}
		}
	}
	return last, nil
}

// settleAll works out, for each run of the forward, which objects it began to make that no state has. It does so once for a
// run, before anything else is done to the state.
func (w *world) settleAll(ctx context.Context, ws *workspace) (lost []creation, err error) {
	all, err := listRuns(ws.token)
	if err != nil {
		return nil, err
	}
	var now map[string]string
	for _, r := range all {
		var s supervisorRecord
		if found, err := ws.token.Read(r.doc(docProcess), &s); err != nil || !found || s.Turn != 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		if now == nil {
			state, err := ws.pullState(ctx)
			if err != nil {
				return nil, err
			}
			now = state.managed()
		}
		missing, err := r.missingCreations(now)
		if err != nil {
			return nil, err
		}
		if _, err := ws.token.Create(r.doc(docSettled), &missing); err != nil {
			return nil, err
		}
		lost = append(lost, stillLost(missing, now)...)
	}
	return lost, nil
}

// missingCreations are the creations of a run that are not among the objects of the state.
func (r run) missingCreations(now map[string]string) ([]creation, error) {
	said, err := readReport(stdoutOf(r.dir()))
	if err != nil {
		return nil, err
	}
	missing := []creation{}
	for _, c := range said.Created {
		if _, there := now[c.Address]; !there {
			missing = append(missing, c)
		}
	}
	return missing, nil
}

// stillLost are those of missing that have not been adopted since.
func stillLost(missing []creation, now map[string]string) []creation {
	return slices.DeleteFunc(slices.Clone(missing), func(c creation) bool {
		_, there := now[c.Address]
		return c.Fate == completed && there
	})
}

// unknowableAddresses are the addresses whose objects may or may not exist.
func unknowableAddresses(lost []creation) []string {
	return append(byFate(lost, inFlight), byFate(lost, completed)...)
}

// byFate are the addresses of the creations that got that far.
func byFate(cs []creation, fate creationFate) []string {
	var all []string
	for _, c := range cs {
		if c.Fate == fate {
			all = append(all, c.Address)
		}
	}
	return all
}

// moveErrands moves states that terraform could not save out of the working copies, so that these can be made again.
func moveErrands(t *journal.Token) ([]string, error) {
	kept := filepath.Join(t.Dir(), errandsName)
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(t.Dir(), "work", "*", errandName))
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

// pushErrands pushes states that terraform could not save, if they are newer than the current one. It never forces.
func (ws *workspace) pushErrands(ctx context.Context, errands []string) error {
	for _, file := range errands {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		saved, err := parseHidden(ctx, raw)
		if err != nil {
			return err
		}
		now, err := ws.pullState(ctx)
		if err != nil {
			return err
		}
		if !now.exists() || now.Lineage == saved.Lineage && now.Serial < saved.Serial {
			if err := ws.pushState(ctx, raw); err != nil {
				return err
			}
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// adoptMade imports what is known to have been made, and returns what stays lost.
func (ws *workspace) adoptMade(ctx context.Context, lost []creation) (still []creation, err error) {
	for _, c := range lost {
		if c.Fate == completed {
			adopted, err := ws.importCreation(ctx, c)
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

// pushState makes raw the state.
func (ws *workspace) pushState(ctx context.Context, raw []byte) error {
	file := filepath.Join(ws.dir, "unwind.push.tfstate")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	_, err := ws.runChange(ctx, "state push", func(order) error {
		return ws.tf.StatePush(ctx, file, tfexec.Lock(true), tfexec.LockTimeout(ws.LockTimeout.String()))
	})
	return errors.Join(err, os.Remove(file))
}

// importCreation imports an object that terraform made and reported the ID of, but that no state has. It returns false if
// the provider cannot import it.
func (ws *workspace) importCreation(ctx context.Context, c creation) (bool, error) {
	if c.ID == "" {
		return false, nil
	}
	said, err := ws.runChange(ctx, "import", func(order) error {
		options := []tfexec.ImportOption{tfexec.LockTimeout(ws.LockTimeout.String())}
		if ws.state != "" {
			options = append(options, tfexec.DisableBackup())
		}
		return ws.tf.Import(ctx, c.Address, c.ID, options...)
	})
	switch {
	case err == nil, strings.Contains(said.failure(), "non-existent remote object"): // it is gone already
		return true, nil
	case ctx.Err() != nil, activities.TypeOf(err) == activities.Fenced, lockHint(said) != "":
		return false, err
	}
	return false, nil
}
