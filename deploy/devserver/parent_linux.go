package devserver

import "syscall"

// endWithParent makes the kernel signal the child when we die, for a server that does not watch its
// stdin.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
