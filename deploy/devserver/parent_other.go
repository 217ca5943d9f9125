//go:build !linux

package devserver

import "syscall"

// endWithParent can do nothing here: only our own server, which watches its stdin, ends when we are
// killed.
func endWithParent(*syscall.SysProcAttr) {}
