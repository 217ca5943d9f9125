// Package environment is environment.yaml and what follows from it: the tasks that take a
// checkpoint of an environment and roll it back, and which checkpoints are kept. It is pure.
//
// Both are ordinary tasks, whose steps are ordinary actions: all parts are captured, or put back,
// beside each other while the unit is stopped. So one that dies in the middle is unwound, recovered
// and reported as any other task is.
package environment
