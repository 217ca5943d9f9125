// Package point labels the instants between two side effects, so that a test can kill or stop a
// process at exactly one.
//
// Production code calls Reach with a label of the form "action:what-was-just-done", at the cost of
// an atomic load. A test's child process installs a hook that sends itself SIGKILL or SIGSTOP (see
// activities/actiontest).
package point
