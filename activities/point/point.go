package point

import "sync/atomic"

var hook atomic.Pointer[func(label string)]

// Reach tells the hook, if any, that the program has reached label.
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
