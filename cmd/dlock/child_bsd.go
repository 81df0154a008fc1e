//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing: the guard alone kills the command when dlock is gone.
func dieWithParent(*syscall.SysProcAttr) {}
