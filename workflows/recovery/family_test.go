package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

func ended(id, kind, of string, as compensations.Status, how enumspb.WorkflowExecutionStatus) recovery.Run {
	return recovery.Run{Chain: protocol.Chain{WorkflowID: id}, Type: kind, Of: of, Unwind: as, Status: how}
}

func TestHowATaskStandsAndWhatCanBeDone(t *testing.T) {
	const completed, failed, terminated = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED,
		enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	task := ended("t", protocol.AgentTaskType, "", compensations.Committed, completed)
	back := func(as compensations.Status, how enumspb.WorkflowExecutionStatus) recovery.Run {
		return ended("back", protocol.RollbackType, "t", as, how)
	}
	part := back(compensations.Remains, completed)
	part.Part = "step one"
	for name, c := range map[string]struct {
		family   recovery.Family
		now      string
		verb, id string
	}{
		"nothing was done": {nil, "", "rollback", "t"},
		"rolled back":      {recovery.Family{back(compensations.Unwound, completed)}, "rolled back", "redo", "back"},
		"with remains": {recovery.Family{back(compensations.Remains, completed)}, "rolled back with remains",
			"redo", "back"},
		"a part, with remains":    {recovery.Family{part}, "rolled back in part with remains", "redo", "back"},
		"the rollback is refused": {recovery.Family{back(compensations.Unwound, failed)}, "", "", ""},
		"the redo is refused": {recovery.Family{
			back(compensations.Remains, completed), ended("redo", protocol.RedoType, "back", compensations.Unwound, failed),
		}, "rolled back with remains", "", ""},
		"redone": {recovery.Family{
			back(compensations.Remains, completed), ended("redo", protocol.RedoType, "back", compensations.Redone, completed),
		}, "redone", "rollback", "redo"},
		"redone in part": {recovery.Family{
			back(compensations.Unwound, completed), ended("redo", protocol.RedoType, "back", compensations.Partly, completed),
		}, "redone in part", "rollback", "redo"},
		"its recovery leaves remains": {recovery.Family{
			back(compensations.Open, terminated),
			ended("recover", protocol.RecoverType, "back", compensations.Remains, completed),
		}, "rolled back with remains", "redo", "back"},
	} {
		t.Run(name, func(t *testing.T) {
			now, _ := c.family.Of("t")
			require.Equal(t, c.now, now)
			verb, id := c.family.Next(task)
			require.Equal(t, [2]string{c.verb, c.id}, [2]string{verb, id})
		})
	}
}
