package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	pollInterval = 10 * time.Millisecond
	signalLimit  = 30 * time.Second // for a signal to have its effect
)

var errNotRunning = errors.New("dlock: the server is not running")

// A process is a running command and everything that it has started. Signals go
// to the whole tree and not to a process group, because each worker of Postgres
// is the leader of a group of its own. A nil process has never run.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the command has ended
}

// start runs cmd in a session of its own, known to the reaper. In ours, the end of
// the test binary would make the kernel send SIGHUP and SIGCONT to what is stopped.
func start(cmd *exec.Cmd) (*process, error) {
	reaper, err := theReaper()
	if err != nil {
		return nil, err
	}
	reaper.adopt(cmd)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the log says more than the exit code
		reaper.forget(cmd.Process.Pid)
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// pause stops the tree and returns when no thread of it runs any more.
func (p *process) pause() error {
	tree := p.freeze()
	if tree == nil {
		return errNotRunning
	}
	return awaitStates(tree, stoppedStates)
}

// resume lets a paused tree run on. It is stopped once more first, so that the
// list of its processes is whole.
func (p *process) resume() error {
	tree := p.freeze()
	if tree == nil {
		return errNotRunning
	}
	return signal(tree, syscall.SIGCONT)
}

// terminate asks the command to end with sig, and kills what is left of the
// tree when it has not after signalLimit.
func (p *process) terminate(sig syscall.Signal) error {
	if p == nil || p.cmd.Process.Signal(sig) != nil {
		return nil
	}
	_ = p.resume() // a paused process sees the signal only when it runs
	select {
	case <-p.done:
		return nil
	case <-time.After(signalLimit):
		return p.kill()
	}
}

// kill ends the tree with SIGKILL and returns when all of it is gone.
func (p *process) kill() error {
	tree := p.freeze()
	if tree == nil {
		return nil
	}
	if err := errors.Join(markSharedMemory(tree), signal(tree, syscall.SIGKILL)); err != nil {
		return err
	}
	<-p.done
	return awaitStates(tree, endedStates)
}

// freeze stops the tree, parents first so that none can start another child,
// and returns its process numbers, nil when the command has ended.
func (p *process) freeze() []int {
	if p == nil || p.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return nil
	}
	return append([]int{p.pid()}, freezeBelow(p.pid())...)
}

func freezeBelow(pid int) []int {
	var tree []int
	for _, child := range children(pid) {
		if syscall.Kill(child, syscall.SIGSTOP) == nil {
			tree = append(append(tree, child), freezeBelow(child)...)
		}
	}
	return tree
}

// children are those of all threads, since any of them may fork.
func children(pid int) []int {
	var pids []int
	for _, list := range taskFiles(pid, "children") {
		for field := range strings.FieldsSeq(list) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// taskFiles reads one file of /proc for every thread of a process.
func taskFiles(pid int, name string) []string {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, name))
	var contents []string
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil {
			contents = append(contents, string(data))
		}
	}
	return contents
}

// states returns the state letter of every thread, none for a process that is gone.
func states(pid int) []byte {
	var letters []byte
	for _, stat := range taskFiles(pid, "stat") {
		// The name in parentheses may hold any character, so the last one counts.
		if end := strings.LastIndex(stat, ") "); end >= 0 && end+2 < len(stat) {
			letters = append(letters, stat[end+2])
		}
	}
	return letters
}

// Letters of /proc for threads that run no more. A zombie has ended: whether its
// parent collects it is not our matter.
const (
	endedStates   = "ZX"
	stoppedStates = "Tt" + endedStates
)

// allIn says whether every thread of the tree is in one of the states.
func allIn(tree []int, letters string) bool {
	for _, pid := range tree {
		if len(bytes.Trim(states(pid), letters)) > 0 {
			return false
		}
	}
	return true
}

func signal(pids []int, sig syscall.Signal) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("dlock: signal %v to process %d: %w", sig, pid, err)
		}
	}
	return nil
}

func awaitStates(tree []int, letters string) error {
	for end := time.Now().Add(signalLimit); !allIn(tree, letters); time.Sleep(pollInterval) {
		if time.Now().After(end) {
			return errors.New("dlock: a signal had no effect on a server")
		}
	}
	return nil
}
