// Package compensations is a saga engine for Temporal workflows: it undoes what a workflow has done, last in first out,
// whatever ended it.
//
// A [Saga] holds a ledger of entries. Each entry is registered before its forward runs and is an argument of the
// forward's activity, so the workflow's history holds it no later than the forward: any worker, or another workflow, can
// undo from it. Entries are data, never closures.
//
//	saga := compensations.New(ctx, compensations.Options{})
//	entry := saga.Register(ctx, compensations.Step{ID: "config", Action: "file.write", Undo: "file.write.undo", ...})
//	err := workflow.ExecuteActivity(ctx, "file.write", activities.Forward{Entry: entry, ...}).Get(ctx, &result)
//	if err != nil {
//		report := saga.Unwind(ctx, compensations.Cause{Kind: compensations.Failure, Text: err.Error()})
//		...
//	}
//
// Do not unwind inside a defer: under a panic it cannot block, and the eviction of a cached workflow runs its defers.
//
// Unwinding runs on a context that no cancellation reaches. The failed step is undone as well, for a step that reported
// an error may have acted. An undo that fails is retried for its whole budget and then parked: the steps that it needs
// wait for it, independent ones go on, and a person resolves it by the signal [SignalResolve]. Unwind returns when every
// entry is settled, with a [Report] of what was seen.
package compensations
