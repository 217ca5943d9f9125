// Package point labels the instants between two side effects, so that a test can kill or stop a process at exactly one.
//
// Production code calls Reach with a label of the form "action:what-was-just-done"; it costs one atomic load. A test's
// child process installs a hook that raises SIGKILL or SIGSTOP on the process itself (see activities/actiontest).
package point
