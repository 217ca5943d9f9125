package task

import (
	"github.com/seed-62bf7108/unwind/activities"
)

// Limits on a task file. What is larger is refused before anything is touched.
const (
	// MaxFile is the size of a task file in bytes.
	MaxFile = 4 << 20
	// MaxDocument is the size of a task as JSON: a server takes no larger input of a workflow.
	MaxDocument = 2_000_000
	// MaxSteps is the number of steps.
	MaxSteps = 10_000
	// MaxTargets is the number of targets of a group, MaxGroupSteps that of its steps for each.
	MaxTargets    = 1000
	MaxGroupSteps = 50
	// MaxAdded is the number of steps that are added to a session at once.
	MaxAdded = 100
	// MaxInline is the size of one step's parameters as JSON; they stand in the workflow's history.
	MaxInline = activities.MaxInline
	// MaxVars is the size of all vars as JSON.
	MaxVars = 64 << 10
	// MaxCompiled is how many bytes vars may add to all steps together.
	MaxCompiled = 16 << 20
	// MaxDepth is how deep lists and maps may be nested.
	MaxDepth = 64
	// MaxName is the length of a name in characters.
	MaxName = 200
	// MaxWhy is the length of a gate's reason in characters.
	MaxWhy = 1000
	// MaxKey is the length of a key in a map in characters.
	MaxKey = 256
	// MaxChecks is the number of checks of one step, MaxCheckBytes their size as JSON with the vars
	// filled in: they go along with the parameters, and 40 steps at once must fit into one message of
	// 4 MB.
	MaxChecks     = 100
	MaxCheckBytes = 16 << 10
	// MaxAttempts is the number of attempts of one forward, and of one undo.
	MaxAttempts = 1000
	// MaxTimes is how often a step that fails goes back to a savepoint.
	MaxTimes = 100
	// MaxDuration is the longest time that can be written.
	MaxDuration = activities.MaxDuration
	// MaxProblems is how many problems of one file are reported.
	MaxProblems = 100
)
