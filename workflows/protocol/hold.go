package protocol

// An undo that begins after the end of its task needs records that retention may release meanwhile.
// So all of them are held before the first is used: a file whose newest change was undone, and
// whose older ones could not be, would be in a state that nobody has ever seen.

// HoldRequest is the argument of HoldActivity: tokens of one world on one host. Their holder is the
// workflow that asks.
type HoldRequest struct {
	World  string   `json:"world"`
	Tokens []string `json:"tokens"`
}

// Held is the result of HoldActivity.
type Held struct {
	// Released are the tokens that cannot be held: their release has begun.
	Released []string `json:"released,omitempty"`
}
