package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// A screen is a terminal with a program in a session of its own.
type screen struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	read   chan struct{} // closed when there is nothing more to read

	mu    sync.Mutex
	shown bytes.Buffer
}

// onScreen starts a program in the directory of s, on a terminal.
func (s *shell) onScreen(name string, args ...string) *screen {
	s.t.Helper()
	master, slave := openPTY(s.t)
	defer slave.Close()
	sc := &screen{t: s.t, master: master, read: make(chan struct{}), cmd: exec.Command(name, args...)}
	sc.cmd.Dir, sc.cmd.Env = s.dir, append(s.command().Env, "PS1=$ ", "ENV=")
	sc.cmd.Stdin, sc.cmd.Stdout, sc.cmd.Stderr = slave, slave, slave
	sc.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := sc.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go sc.copy()
	s.t.Cleanup(func() {
		_ = sc.cmd.Process.Kill()
		_ = master.Close()
		<-sc.read
	})
	return sc
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "terminal")
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func (s *screen) copy() {
	defer close(s.read)
	for {
		b := make([]byte, 1024)
		n, err := s.master.Read(b)
		s.mu.Lock()
		s.shown.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) typeIn(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *screen) await(text string) {
	s.t.Helper()
	until(s.t, text, func() bool { return strings.Contains(s.text(), text) })
}

func (s *screen) expect(code int) {
	s.t.Helper()
	ended := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(ended) }()
	until(s.t, "end", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("exit code %d, want %d; the screen shows %q", got, code, s.text())
	}
}

func TestCommandReadsTerminal(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"alone":         `./dlock run job -- sh -c 'read x; echo got-$x'`,
		"in a pipeline": `./dlock run job -- sh -c 'read x; echo got-$x' | cat`,
		"and back":      `./dlock run job -- true; read x; echo got-$x`,
		"after failure": `./dlock run job -- sh -c 'exit 3'; read x; echo got-$x`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newShell(t).onScreen("sh", "-c", script)
			sc.typeIn("this\n")
			sc.await("got-this")
			sc.expect(0)
		})
	}
}

func TestInterruptKey(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	sc := s.onScreen("./dlock", "run", "job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	sc.typeIn(ctrlC)
	sc.expect(128 + int(syscall.SIGINT))
}

// TestSuspendKey: dlock stops with its command and goes on with it.
func TestSuspendKey(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	sc := s.onScreen("sh", "-i")
	sc.typeIn("./dlock run job -- sh -c 'echo $PPID $$ > pids; exec sleep 300'\n")
	pids := s.awaitPIDs("pids", 2)
	for range 3 {
		sc.typeIn(ctrlZ)
		for _, pid := range pids {
			until(t, "stop", func() bool { return state(pid) == "T" })
		}
		s.start("run", "-n", "job", "--", "true").expect(exitHeld, "held")
		sc.typeIn("fg\n")
		for _, pid := range pids {
			until(t, "continuation", func() bool { return state(pid) == "S" })
		}
	}
	sc.typeIn(ctrlC)
	awaitGone(t, pids...)
	sc.typeIn("exit $?\n")
	sc.expect(128 + int(syscall.SIGINT))
}

func TestProgressOnTerminal(t *testing.T) {
	sc := newShell(t).onScreen("./dlock", "demo")
	sc.expect(0)
	for _, want := range []string{"without lock  [", "with lock     [", "%", "\r\x1b[K"} {
		sc.await(want)
	}
}

// A person who lists no locks is told where there are none, and a program gets no line.
func TestListOfNothing(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	sc := s.onScreen("./dlock", "ls", "app/")
	sc.expect(0)
	sc.await("no such lock is held or waited for at file:///")
	if _, p := s.run("ls", "app/"); p.out.String() != "" || p.err.String() != "" {
		t.Errorf("prints %q, says %q", p.out.String(), p.err.String())
	}
}

// TestWatchFits has a terminal of 40 columns show who holds each lock and how many wait,
// where names and labels are long and differ at the end only.
func TestWatchFits(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	prefix := strings.Repeat("tenant/", 10)
	for _, n := range []string{"1", "2"} {
		s.start("run", prefix+"order/"+n, "--", "sh", "-c", "echo > held"+n+"; exec sleep 300")
		s.await("held" + n)
	}
	master, slave := openPTY(t)
	defer master.Close()
	defer slave.Close()
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 40, Row: 10}); err != nil {
		t.Fatal(err)
	}
	watch := s.command("watch", "-n", "1", "tenant/")
	watch.Stdout = slave
	if err := watch.Run(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := master.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(b[:n]), "\r\n"), "\r\n")
	if len(lines) != 3 {
		t.Fatalf("shows %q", lines)
	}
	for i, want := range []string{`^\x1b\[H\x1b\[2JNAME +HOLDER +FOR +WAITERS$`, `^tenan\S*…\S*r/1  \S.*….*\d  \d+s +0$`, `^tenan\S*…\S*r/2  \S.*….*\d  \d+s +0$`} {
		if text := strings.TrimPrefix(lines[i], "\x1b[H\x1b[2J"); !regexp.MustCompile(want).MatchString(lines[i]) || cells(text) > 40 {
			t.Errorf("line %d is %q", i, lines[i])
		}
	}
}

// A small terminal shows the beginning of each line, and no more lines than it has.
func TestWatchOnSmallTerminal(t *testing.T) {
	master, slave := openPTY(t)
	defer master.Close()
	defer slave.Close()
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 10, Row: 4}); err != nil {
		t.Fatal(err)
	}
	if got := fitted("0123456789\nüüüüüüüüüüü\nthree\nfour\nfive\n", slave); got != "0123456789\nüüüüüüüüü…\nthree\n" {
		t.Errorf("got %q", got)
	}
}

func TestBenchShowsProgress(t *testing.T) {
	s := newShell(t)
	sc := s.onScreen("./dlock", brief...)
	sc.expect(0)
	if !strings.Contains(sc.text(), bar("a free lock", 0)) {
		t.Errorf("the screen shows no bar: %q", sc.text())
	}
}

func TestDemoInterruptedByKey(t *testing.T) {
	t.Parallel()
	s := newDemoShell(t)
	sc := s.onScreen("./dlock", "demo", "--sales=100000000")
	workers := s.awaitWorkers(sc.cmd.Process.Pid, 4)
	sc.typeIn(ctrlC)
	sc.expect(128 + int(syscall.SIGINT))
	awaitGone(t, workers...)
	s.expectNoRest()
	if strings.Contains(sc.text(), "dlock: ") {
		t.Errorf("the screen shows %q", sc.text())
	}
}
