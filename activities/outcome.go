package activities

// Outcome is how an undo ended, by what was observed.
type Outcome string

// The outcomes of an undo. Drifted, Unknown and Failed wait for a person; the others settle the step.
const (
	Restored    Outcome = "restored"        // exactly as before
	Compensated Outcome = "compensated"     // offset, or exact but for the losses that are named
	Nothing     Outcome = "nothing-to-undo" // the forward had not acted, and no longer can
	Drifted     Outcome = "drifted"         // someone else changed it since: untouched
	Residue     Outcome = "residue"         // something is left over, and named
	Unknown     Outcome = "unknown"         // whether something is left over cannot be known
	Final       Outcome = "irreversible"    // it acted and cannot be taken back
	Failed      Outcome = "failed"          // the undo could not be done
)

// Clean says that nothing is left to tell a person.
func (o Outcome) Clean() bool { return o == Restored || o == Compensated || o == Nothing }

// Settles says that the steps which the undone one needs may be undone now.
func (o Outcome) Settles() bool { return o.Clean() || o == Residue || o == Final }
