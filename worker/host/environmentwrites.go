package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/retention"
	"github.com/seed-62bf7108/unwind/internal/canonical"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// findWrites finds in the journals of this host which steps have changed parts of an environment.
// What its own tasks have done is no news to it.
func (b builtin) findWrites(ctx context.Context, r environment.WritesRequest) (found environment.Writes, err error) {
	defer activities.Beat(ctx)()
	busy, err := b.server.Busy(ctx)
	if err != nil {
		return found, err
	}
	look := &round{builtin: b, busy: busy, owners: map[activities.Owner]ownerState{}}
	parts, err := b.nameParts(ctx, r.Parts)
	if err != nil {
		return found, err
	}
	found.Since = time.Now().Add(-retention.Policy{Audit: b.config.Retention.Audit}.WithDefaults().Audit)
	journals := b.registry.Records()
	for _, world := range slices.Sorted(maps.Keys(journals)) {
		records, problems, err := journals[world].Records(ctx)
		if err != nil {
			problems = append(problems, err)
			found.Blind = append(found.Blind, partsOf(world, r.Parts)...)
		}
		for _, p := range problems[:min(len(problems), activities.MaxItems)] {
			found.Unread = append(found.Unread, b.host().Masker().String(fmt.Sprintf("world %s: %v", world, p)))
		}
		for _, record := range records {
			if standsNoLonger(record) || environment.TakenBy(r.Environment, record.Owner.Workflow) != "" {
				continue
			}
			touched := touchedParts(r.Environment, parts, record.Entry)
			switch isNameless := record.Entry.Keys == nil && record.Owner.Workflow != "" && world != "environment"; {
			case isNameless && len(touched) == 0 && len(found.Unread) < activities.MaxItems:
				found.Unread = append(found.Unread, fmt.Sprintf("step %s of task %s does not name what it changes",
					record.Entry.Step, record.Owner.Workflow))
				continue
			case len(touched) == 0:
				continue
			}
			owner, err := look.ownerOf(ctx, record)
			if _, isNone := errors.AsType[*serviceerror.InvalidArgument](err); isNone { // asked again, it answers the same
				found.Unread = append(found.Unread, fmt.Sprintf("step %s has run outside of any task", record.Entry.Step))
				continue
			}
			if err != nil {
				return found, err
			}
			w := environment.Write{Task: record.Owner.Workflow, At: record.Since,
				Open: !owner.gone && (owner.needed || busy[owner.Task]), Ended: owner.over}
			for _, w.Part = range touched {
				found.Merge(w)
			}
		}
	}
	found.Fit()
	return found, nil
}

// partsOf are the parts that a world itself puts back.
func partsOf(world string, parts []environment.NamedForTask) (names []string) {
	for _, p := range parts {
		if of, _, _ := strings.Cut(p.Uses, "."); of == world {
			names = append(names, p.Part)
		}
	}
	return names
}

// standsNoLonger reports whether a step has done nothing, or what it has done was undone.
func standsNoLonger(r activities.Record) bool {
	return r.Unchanged || r.Undone || r.State == activities.RecordUndone && !r.Ended.IsZero()
}

// nameParts names each part as the entry of a step would that puts it back.
func (b builtin) nameParts(ctx context.Context, parts []environment.NamedForTask) (map[string]activities.Entry, error) {
	names, err := canonical.ReadMounts()
	if err != nil {
		return nil, err
	}
	all := map[string]activities.Entry{}
	for _, p := range parts {
		touched, _ := b.nameTouched(ctx, names, protocol.PreflightStep{Uses: p.Uses,
			Step: activities.Outlook{Step: activities.Step{With: p.With}}})
		all[p.Part] = activities.Entry{Keys: b.registry.KeysOf(p.Uses, p.With), Changes: touched.Changes}
	}
	return all, nil
}

// touchedParts are the parts that a step has changed, as its entry names them. A rollback of the
// environment has changed all.
func touchedParts(name string, parts map[string]activities.Entry, e activities.Entry) (touched []string) {
	if environment.OnlyLooks(e.Action) {
		return nil
	}
	isRollback := e.Action == "environment.rollback" && environmentIn(e) == name
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		if isRollback || activities.TouchSame(parts[part], e) {
			touched = append(touched, part)
		}
	}
	return touched
}

// environmentIn is the environment that a step of the world of environments names.
func environmentIn(e activities.Entry) string {
	var p struct {
		Environment string `json:"environment"`
	}
	_ = json.Unmarshal(e.Params, &p) // what names none is about none
	return p.Environment
}
