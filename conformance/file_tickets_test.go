//go:build dlock_portable

package conformance_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mostHolds: a hold is two open files, and 20,000 are what some systems let a process have.
const mostHolds = 8_000

// positionsIn counts the places in the queue of a lock file: every waiter has a ticket
// for a byte beyond the first two.
func positionsIn(t testing.TB, path string) (n int) {
	all, err := filepath.Glob(strings.NewReplacer("[", "\\[", "*", "\\*", "?", "\\?").Replace(path) + ".*.tickets/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range all {
		at, _, _ := strings.Cut(filepath.Base(ticket), ".")
		if position, err := strconv.ParseInt(at, 10, 64); err == nil && position > 1 {
			n++
		}
	}
	return n
}
