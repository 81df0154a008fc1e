//go:build linux && !dlock_portable

package conformance_test

import (
	"errors"
	"io"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// mostHolds: a hold is one open file.
const mostHolds = 0

// positionsIn counts the places in the queue of a lock file: every waiter has a
// byte beyond the first two locked.
func positionsIn(t testing.TB, path string) int {
	f, err := os.Open(path) // for reading: to close a file that was written to wakes those who wait
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return countLocks(t, f, 2, math.MaxInt64-1)
}

func countLocks(t testing.TB, f *os.File, first, last int64) int {
	if first > last {
		return 0
	}
	r := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: first, Len: last - first + 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &r); err != nil {
		t.Fatal(err)
	}
	if r.Type == unix.F_UNLCK {
		return 0
	}
	return countLocks(t, f, first, r.Start-1) + 1 + countLocks(t, f, r.Start+r.Len, last)
}
