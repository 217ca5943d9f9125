package server

import "fmt"

// The names of our sessions on a server. In a call for a step, its token follows: a fence ends
// those of the forward.
const (
	ForwardName   = "unwind apply"
	PlanName      = "unwind plan"
	UndoName      = "unwind undo"
	LookName      = "unwind look"
	PreflightName = "unwind preflight"
	PrepareName   = "unwind prepare"
	RecordsName   = "unwind records"
	JournalName   = "unwind"
)

// EndForward ends the sessions of the forward of a token, wherever they are, with those of the
// programs that it runs.
func (c *Connection) EndForward(token string) error {
	return c.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_get_activity(NULL) WHERE application_name = $1",
		ForwardName+" "+token)
}

// EndForwardForGood is EndForward that returns once these sessions are over, so that nothing which
// they were about to do can still happen.
func (c *Connection) EndForwardForGood(token string) error {
	const looks = 10
	for range looks {
		var there int
		if err := c.Scan(`SELECT count(pg_terminate_backend(pid, 1000)) FROM pg_stat_get_activity(NULL)
			WHERE application_name = $1`, []any{ForwardName + " " + token}, &there); err != nil || there == 0 {
			return err
		}
	}
	return fmt.Errorf("database %s: a session of the step does not end; it is tried again", c.Name)
}

// TriggerName is that of our trigger on tables, or what its name begins with where a table has one
// for each kind of statement. It sorts before the names of other triggers, which fire in the order
// of their names.
const TriggerName = "!unwind"

// IsTrigger is the condition that a trigger of pg_trigger is ours.
const IsTrigger = "tgname ~ '^!unwind( (insert|update|delete))?$'"
