package command

import (
	"cmp"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/sign"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// signFlags say how a decision is signed: where only signed ones count, or a key is given.
type signFlags struct{ key, as string }

func (f *signFlags) addTo(c *cobra.Command) {
	c.Flags().StringVar(&f.key, "key", "",
		"sign with the SSH key in this `file`; with a public key the SSH agent signs (default UNWIND_KEY, else the "+
			"agent's only key)")
	c.Flags().StringVar(&f.as, "as", "",
		"sign as this `person` of the worker's signers (default UNWIND_AS, else your login name)")
}

// signGate signs a decision about a gate.
func (f signFlags) signGate(task, verdict string, g protocol.GateView, d protocol.Decision) (protocol.Decision, error) {
	f, isAsked := f.withDefaults(g.Signed)
	if !isAsked {
		return d, nil
	}
	if verdict == activities.Approve && g.Change.UndoDigest() != g.Undo {
		return d, usage.Errorf("how step %s would be undone is not shown as a whole, so nothing was signed or sent: "+
			"reject it, or cancel the task", g.Step)
	}
	d.Who, d.At = f.as, now()
	signature, err := f.sign(g.Step, g.Statement(task, verdict, d))
	d.Signature = signature
	return d, err
}

// signResolution signs a resolution of a park.
func (f signFlags) signResolution(isWanted bool, r protocol.Resolution,
	statement func(protocol.Resolution) activities.Statement) (protocol.Resolution, error) {
	f, isAsked := f.withDefaults(isWanted)
	if !isAsked {
		return r, nil
	}
	r.Who, r.At = f.as, now()
	signature, err := f.sign(r.Step, statement(r))
	r.Signature = signature
	return r, err
}

// ofEdit is the statement of other parameters for a step at a gate.
func ofEdit(task string, g protocol.GateView) func(protocol.Resolution) activities.Statement {
	return func(r protocol.Resolution) activities.Statement { return g.StatementOfEdit(task, r) }
}

// ofUndo and ofStep are the statements of what is parked.
func ofUndo(task string, s compensations.StepReport) func(protocol.Resolution) activities.Statement {
	return func(r protocol.Resolution) activities.Statement { return s.Statement(task, r.Resolution) }
}

func ofStep(task string, p protocol.ParkView) func(protocol.Resolution) activities.Statement {
	return func(r protocol.Resolution) activities.Statement { return p.Statement(task, r) }
}

// withDefaults reports whether a decision is signed. With a key it is signed also where that is not known
// to be wanted: the worker that acts may have another config by now than when the task began.
func (f signFlags) withDefaults(isWanted bool) (signFlags, bool) {
	f.key, f.as = cmp.Or(f.key, os.Getenv("UNWIND_KEY")), cmp.Or(f.as, os.Getenv("UNWIND_AS"))
	if !isWanted && f.key == "" {
		return f, false
	}
	if u, err := user.Current(); err == nil {
		f.as = cmp.Or(f.as, u.Username)
	}
	return f, true
}

func (f signFlags) sign(step string, s activities.Statement) (string, error) {
	signature, err := sign.Text(f.key, s)
	if err != nil {
		return "", usage.Errorf("the decision about step %s could not be signed, and nothing was sent: %w", step, err)
	}
	return signature, nil
}

// now is without fractions, which would say nothing to who reads what is signed.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
