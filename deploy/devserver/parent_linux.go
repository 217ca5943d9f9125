package devserver

import "syscall"

// endWithParent has the kernel tell the child when we die, for a server that does not watch its stdin.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
