// Package point labels the instants between two side effects, so that a test can kill or stop a process at exactly one.
//
// Production code calls Reach with a label of the form "action:what-was-just-done"; it costs one atomic load. A test's
// child process installs a hook that raises SIGKILL or SIGSTOP on the process itself (see activities/actiontest).
package point

import "sync/atomic"

var hook atomic.Pointer[func(label string)]

// Reach tells the hook, if there is one, that the program stands at label.
func Reach(label string) {
	if h := hook.Load(); h != nil {
		(*h)(label)
	}
}

// Hook installs h for the whole process; nil removes it.
func Hook(h func(label string)) {
	if h == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&h)
}
