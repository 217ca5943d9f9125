// Package planning holds the workflows that say what a task would do, and touch nothing:
// [PlanTask], [ValidateTask], and [ClearPlan], which releases what a plan that was ended has left
// in journals.
//
// It imports calls, and no engine.
package planning
