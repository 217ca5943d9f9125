package activities

// Outcome is how an undo ended, by what was observed.
type Outcome string

// The outcomes of an undo. Drifted, Unknown and Failed wait for a person; the others settle the
// step.
const (
	Restored    Outcome = "restored"        // exactly as before
	Compensated Outcome = "compensated"     // offset, or exact except for the named losses
	Nothing     Outcome = "nothing-to-undo" // the forward had not acted, and no longer can
	Drifted     Outcome = "drifted"         // someone else has changed it since, so it was not touched
	Residue     Outcome = "residue"         // something is left over, and is named
	Unknown     Outcome = "unknown"         // whether something is left over cannot be known
	Final       Outcome = "irreversible"    // it acted and cannot be undone
	Failed      Outcome = "failed"          // the undo could not be done
)

// Clean reports whether there is nothing that a person must know.
func (o Outcome) Clean() bool { return o == Restored || o == Compensated || o == Nothing }

// Settles reports whether the steps that the undone one needs may now be undone.
func (o Outcome) Settles() bool { return o.Clean() || o == Residue || o == Final }
