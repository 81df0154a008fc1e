package conformance_test

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// sideBySide is how many backends are tested at once: their properties wait more
// than they work.
const sideBySide = 3

// everyTest is the -run of a process that tests all of one backend.
const everyTest = "^(TestConformance|TestSeeds)$"

// inherited are the flags that a process for one backend has from us.
var inherited = []string{"test.failfast", "test.run", "test.shuffle", "test.skip", "test.timeout", "test.v", "ttl"}

// testInProcesses tests each backend in a process of its own, so that none is counted
// among the goroutines of another.
func testInProcesses(t *testing.T, names []string) {
	var several, alone []string
	for _, name := range names {
		if targets[name].alone {
			alone = append(alone, name)
		} else {
			several = append(several, name)
		}
	}
	runProcesses(t, several, sideBySide)
	runProcesses(t, alone, 1)
}

func runProcesses(t *testing.T, names []string, atOnce int) {
	next := make(chan string)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			runtime.LockOSThread() // the signal comes when the thread ends that has started the process
			defer runtime.UnlockOSThread()
			for name := range next {
				if err := process(name).Run(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	workers.Wait()
}

// process returns this test for one backend. It ends with us, however we end.
func process(name string) *exec.Cmd {
	args := []string{"-backend=" + name, "-test.run=" + everyTest}
	flag.Visit(func(f *flag.Flag) {
		if slices.Contains(inherited, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
