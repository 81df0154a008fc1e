//go:build unix

package redis

import "syscall"

const canLook = true

// readNow reads what has come, and reports whether that is nothing so far.
func readNow(fd uintptr, p []byte) (n int, empty bool) {
	n, err := syscall.Read(int(fd), p)
	return n, err == syscall.EAGAIN || err == syscall.EINTR
}
