//go:build !linux || dlock_portable

package conformance_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mostHolds: a hold is two open files, and 20,000 are what some systems let a process have.
const mostHolds = 8_000

// positionsIn counts the places in the queue of a lock file: every waiter has a ticket
// for a byte beyond the first two, which counts once it is locked.
func positionsIn(t testing.TB, path string) (n int) {
	all, err := filepath.Glob(strings.NewReplacer("[", "\\[", "*", "\\*", "?", "\\?").Replace(path) + ".*.tickets/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range all {
		at, _, _ := strings.Cut(filepath.Base(ticket), ".")
		if position, err := strconv.ParseInt(at, 10, 64); err == nil && position > 1 && isLocked(t, ticket) {
			n++
		}
	}
	return n
}

func isLocked(t testing.TB, path string) bool {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err != nil
}
