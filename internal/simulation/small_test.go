package simulation

import (
	"flag"
	"testing"
	"time"
)

var small = flag.Bool("simulation.small", false, "the library has small limits in place of large ones, which few clients and locks reach")

// TestSmallLimits runs plans in which what a script, a page, a pipeline or a table of the library takes
// is a few.
func TestSmallLimits(t *testing.T) {
	*small = true
	defer func() { *small = false }()
	search(t, 1, 100, 10*time.Second)
}

// limits is the file with what small limits change, if they are wanted.
func limits() []string {
	if !*small {
		return nil
	}
	return []string{"testdata/small"}
}
