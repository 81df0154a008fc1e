package chaos

import "golang.org/x/sys/unix"

// Now reads the machine's monotonic clock in nanoseconds. All processes share
// it.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
