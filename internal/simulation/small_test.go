package simulation

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var small = flag.Bool("simulation.small", false, "the library has small limits in place of large ones, which few clients and locks reach")

// TestSmallLimits runs plans in which what a script, a page, a pipeline or a table of the library takes
// is a few.
func TestSmallLimits(t *testing.T) {
	if os.Getenv("SIMULATION_WORKER") != "" {
		return
	}
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

// limited builds a worker in which the library has small limits.
func limited(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "simulation.test")
	list, err := overlay(dir, limits()...)
	if err == nil {
		err = build(binary, list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// soundWorker is the program that runs plans where the library has no seeded bug.
func soundWorker(t *testing.T) string {
	t.Helper()
	switch {
	case *small && (*stuttering || *standing):
		t.Fatal("the library has other mutexes, or small limits")
	case *standing:
		return stoppable(t)
	case *stuttering:
		return stuttered(t)
	case *small:
		return limited(t)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// build builds a worker in which files of the library are replaced by others.
func build(binary, list string) error {
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("the library does not build: %w\n%s", err, out)
	}
	return nil
}
