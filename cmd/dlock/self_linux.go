package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// self is the program that runs, also if its file has been replaced since.
func self() string { return "/proc/self/exe" }

// hideSelf keeps other processes of this user, the command first of all, from
// reading the credentials in the environment and the memory of this one.
func hideSelf() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// dieWithParent has the kernel kill a process when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// sleepShort sleeps in the kernel: the runtime would round up to a millisecond.
func sleepShort(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal may shorten it
}
