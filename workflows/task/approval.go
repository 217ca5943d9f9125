package task

import "github.com/seed-62bf7108/unwind/activities"

// NeedsApproval reports whether a person must approve a planned change of the step, and why.
func (s Step) NeedsApproval(c activities.Change) (why string, asked bool) {
	if why := c.Asks(activities.Waived); why != "" {
		return why, true
	}
	switch {
	case s.Gate.Mode == GateAsk && (!s.Gate.Risky || !c.Unchanged && !c.IsAllowed()):
		return s.Gate.Why, true
	case s.Gate.Mode == GateAuto && !c.Unchanged && c.Risk != activities.Low:
		return "its risk is " + string(c.Risk), true
	}
	why = c.Asks(s.Gate.Consent())
	return why, why != ""
}

// DescribeOmission says what becomes of a gate that the task file leaves out; empty for any other.
func (g Gate) DescribeOmission() string {
	if g.Mode != GateNone {
		return ""
	}
	return "runs without its gate, unless its change must always be asked about"
}
