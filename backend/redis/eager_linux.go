package redis

import "syscall"

const canLook = true

// readNow reads what has come, and reports whether that is nothing so far. Then it
// gives way to whoever else wants this processor, which may be the server.
func readNow(fd uintptr, p []byte) (n int, empty bool) {
	n, err := syscall.Read(int(fd), p)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		return 0, true
	}
	return n, false
}
