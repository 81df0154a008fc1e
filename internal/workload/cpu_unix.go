//go:build unix

package workload

import (
	"syscall"
	"time"
)

// CPUTime is the processor time that this process has used so far.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
