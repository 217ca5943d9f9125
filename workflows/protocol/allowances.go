package protocol

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// AllowancesType keeps the standing approvals of the workers on a shared queue, for as long as there are
// any: argument Allowances, id AllowancesID.
const AllowancesType = "Allowances"

// AllowancesID is the id of the workflow that keeps the standing approvals for a shared queue.
func AllowancesID(queue string) string { return queue + "-allowances" }

// Allowances are the standing approvals, in the order in which they were given.
type Allowances struct {
	Given []activities.GivenAllowance `json:"given,omitempty"`
}

// MaxAllowances is how many are kept at most, with those that were revoked or used up before their time.
const MaxAllowances = 50

// MaxAllowanceSkew is how far the clock of who gives one may be ahead.
const MaxAllowanceSkew = time.Hour

// SignedAllowance is an allowance as it is sent.
type SignedAllowance struct {
	activities.Allowance

	Signature string `json:"signature,omitempty"`
}

// Disallowing revokes an allowance.
type Disallowing struct {
	ID  string `json:"id"`
	Who string `json:"who"`
	Why string `json:"why,omitempty"`
}

// AllowanceUse counts a use of an allowance.
type AllowanceUse struct {
	ID string `json:"id"`
	activities.AllowanceUse
}

// What the keeper of standing approvals is asked. What it refuses, of type NothingDecided, changes nothing.
const (
	// QueryAllowances lists them: a list of activities.GivenAllowance.
	QueryAllowances = "allowances"
	// UpdateAllow adds one: argument SignedAllowance, answer activities.GivenAllowance. The same again
	// changes nothing.
	UpdateAllow = "allow"
	// UpdateDisallow revokes one: argument Disallowing, answer activities.GivenAllowance.
	UpdateDisallow = "disallow"
	// UpdateUse counts a use: argument AllowanceUse, answer how many are counted now. The same key again
	// is counted once.
	UpdateUse = "use"
)

// VerifyAllowanceActivity verifies who has signed an allowance: argument SignedAllowance, result Proof.
const VerifyAllowanceActivity = "task.verify_allowance"
