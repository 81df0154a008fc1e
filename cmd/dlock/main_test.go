//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be dlock: in its tests, and for dlock itself
// when it starts its own program again.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "dlock" {
		main()
	}
	for _, sig := range ending {
		if signal.Ignored(sig) { // by nohup, say; what is caught here has its usual effect on what is started
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

const limit = 2 * time.Minute

// A shell is where a test runs dlock: an environment with locks of its own.
type shell struct {
	t       *testing.T
	dir     string
	program string
	extra   []string
}

func newShell(t *testing.T, env ...string) *shell {
	s := &shell{t: t, dir: t.TempDir(), extra: env}
	s.program = filepath.Join(s.dir, "dlock")
	if err := os.Mkdir(s.locks(), 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err == nil {
		err = os.Symlink(program, s.program)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shell) locks() string { return filepath.Join(s.dir, "locks") }

// A process is dlock, as a test has started it.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

// start runs dlock, which the end of the test kills if need be.
func (s *shell) start(args ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, cmd: s.command(args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	s.t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.done })
	return p
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), urlVariable+"=file://"+s.locks(), "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, s.extra...)
	return cmd
}

// run runs dlock to its end and returns the exit code.
func (s *shell) run(args ...string) (code int, p *process) {
	s.t.Helper()
	p = s.start(args...)
	return p.wait(), p
}

func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%q does not end", p.cmd.Args)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// expect checks how dlock ended and that it said so as it should: nothing, or
// one line.
func (p *process) expect(code int, message string) {
	p.t.Helper()
	got, said := p.wait(), p.err.String()
	if got != code {
		p.t.Errorf("%q exited with %d, want %d; it said %q", p.cmd.Args, got, code, said)
	}
	if message == "" && said != "" {
		p.t.Errorf("%q said %q, want nothing", p.cmd.Args, said)
	}
	if message != "" && (!strings.HasPrefix(said, "dlock: ") || !strings.Contains(said, message) || strings.Count(said, "\n") != 1) {
		p.t.Errorf("%q said %q, want one line with %q", p.cmd.Args, said, message)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, limit)
		}
	}
}

// await waits until a command has written a line to the file, and returns it.
func (s *shell) await(file string) string {
	s.t.Helper()
	var text []byte
	until(s.t, file, func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(s.dir, file))
		return err == nil && bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

// awaitPIDs is await for a file with process numbers.
func (s *shell) awaitPIDs(file string, n int) []int {
	s.t.Helper()
	var pids []int
	until(s.t, file, func() bool {
		text, _ := os.ReadFile(filepath.Join(s.dir, file))
		pids = nil
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				s.t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return len(pids) == n && bytes.HasSuffix(text, []byte("\n"))
	})
	return pids
}

// state is the letter that ps shows for a process, empty if there is none.
func state(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, found := bytes.Cut(stat, []byte(") "))
	if !found {
		return ""
	}
	return string(rest[:1])
}

// gone reports whether a process has ended, if nobody else has noticed yet.
func gone(pid int) bool { return strings.Contains("ZX", state(pid)) }

func awaitGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		until(t, "end of process "+strconv.Itoa(pid), func() bool { return gone(pid) })
	}
}
