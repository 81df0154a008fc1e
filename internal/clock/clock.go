// Package clock is a clock that all processes of a machine share, for tests which
// compare moments of several processes.
package clock

import "golang.org/x/sys/unix"

// Now reads the machine's monotonic clock in nanoseconds.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
