package conformance_test

import (
	"cmp"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
)

const (
	// sideBySide is how many backends are tested at once: many of their properties run
	// one by one, and wait more than they work.
	sideBySide = 4

	// parallel is how many properties each of them then runs at once: with more, a
	// machine of two processors does not renew leases in time.
	parallel = "8"
)

// everyTest is the -run of a process that tests all of one backend.
const everyTest = "^(TestConformance|TestSeeds)$"

// inherited are the flags that a process for one backend has from us.
var inherited = []string{"test.failfast", "test.run", "test.shuffle", "test.skip", "test.timeout", "test.v", "ttl"}

// testInProcesses tests each backend in a process of its own, so that none is counted
// among the goroutines of another. Each is a subtest, which -run may choose.
func testInProcesses(t *testing.T, names []string) {
	next := make(chan string)
	var workers sync.WaitGroup
	for range sideBySide {
		workers.Go(func() {
			for name := range next {
				t.Run(name, func(t *testing.T) { runProcess(t, name) })
			}
		})
	}
	for _, name := range slowestFirst(names) {
		next <- name
	}
	close(next)
	workers.Wait()
}

func slowestFirst(names []string) []string {
	place := func(name string) uint { return uint(slices.Index(slowest, name)) } // the others are last
	return slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return cmp.Compare(place(a), place(b)) })
}

func runProcess(t *testing.T, name string) {
	runtime.LockOSThread() // the signal comes when the thread ends that has started the process
	defer runtime.UnlockOSThread()
	if err := process(name).Run(); err != nil {
		t.Error(err)
	}
}

// process returns this test for one backend. On Linux it ends with us, however we end.
func process(name string) *exec.Cmd {
	args := []string{"-backend=" + name, "-test.run=" + everyTest, "-test.parallel=" + parallel}
	flag.Visit(func(f *flag.Flag) {
		value := f.Value.String()
		if f.Name == "test.v" && value == "test2json" {
			value = "true" // the marks of go test -json are for the tests of one process
		}
		if slices.Contains(inherited, f.Name) {
			args = append(args, "-"+f.Name+"="+value)
		}
	})
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	dieWithParent(cmd)
	return cmd
}
