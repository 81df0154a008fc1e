//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// family is a shell script that leaves the numbers of the processes that it
// consists of in a file: a shell, its background child, its foreground child.
const family = `exec 2> /dev/null; sleep 300 & echo $$ $! > pids.new; sh -c 'echo $$ >> pids.new; mv pids.new pids; exec sleep 300'; true`

const familySize = 3

func TestExitCodes(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		code    int
		message string
	}{
		{"success", []string{"run", "a", "--", "true"}, 0, ""},
		{"shared", []string{"run", "-s", "a", "--", "true"}, 0, ""},
		{"that of the command", []string{"run", "a", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"command killed", []string{"run", "a", "--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{"no such command", []string{"run", "a", "--", "no-such-command"}, 127, "not found"},
		{"no such file", []string{"run", "a", "--", "./no-such-file"}, 127, "not found"},
		{"not executable", []string{"run", "a", "--", "./locks"}, 126, "cannot run"},
		{"no interpreter", []string{"run", "a", "--", "./script"}, 126, "cannot run"},
		{"no command", []string{"run", "a", "--"}, 64, "want dlock run"},
		{"no dash", []string{"run", "a", "true"}, 0, ""},
		{"options of the command", []string{"run", "a", "sh", "-c", "exit 7"}, 7, ""},
		{"option after the name", []string{"run", "a", "-n", "--", "true"}, 64, "before NAME"},
		{"wait in seconds", []string{"run", "-w", "5", "a", "--", "true"}, 0, ""},
		{"TTL in seconds", []string{"run", "-t", "1.5", "a", "--", "true"}, 0, ""},
		{"too many seconds", []string{"run", "-w", "1e300", "a", "--", "true"}, 64, "out of range"},
		{"no number of seconds", []string{"run", "-w", "NaN", "a", "--", "true"}, 64, "out of range"},
		{"negative minimum hold", []string{"run", "--min-hold", "-1s", "a", "--", "true"}, 64, "--min-hold \"-1s\": it is negative"},
		{"no name", []string{"run", "--", "true"}, 64, "want dlock run"},
		{"name like an option", []string{"run", "--", "-n", "--", "true"}, 0, ""},
		{"empty name", []string{"run", "", "--", "true"}, 64, "invalid name"},
		{"unknown flag", []string{"run", "--nonsense", "a", "--", "true"}, 64, "unknown flag"},
		{"unknown command", []string{"nonsense"}, 64, "unknown command"},
		{"-n and -w", []string{"run", "-n", "-w", "1s", "a", "--", "true"}, 64, "exclude"},
		{"malformed duration", []string{"run", "-w", "soon", "a", "--", "true"}, 64, "want seconds"},
		{"negative wait", []string{"run", "-w", "-1s", "a", "--", "true"}, 64, "--wait \"-1s\": it is negative"},
		{"TTL too short", []string{"run", "-t", "1ms", "a", "--", "true"}, 64, "invalid TTL"},
		{"zero TTL", []string{"run", "-t", "0", "a", "--", "true"}, 64, "--ttl must be positive"},
		{"exit code out of range", []string{"run", "-E", "256", "a", "--", "true"}, 64, "from 0 to 255"},
		{"grace beyond the lease", []string{"run", "--grace", "16s", "a", "--", "true"}, 64, "--grace"},
		{"grace beyond a short lease", []string{"run", "-t", "1s", "--grace", "600ms", "a", "--", "true"}, 64, "--grace"},
		{"grace within the lease", []string{"run", "-t", "1s", "--grace", "500ms", "a", "--", "true"}, 0, ""},
		{"empty URL", []string{"run", "--backend", "", "a", "--", "true"}, 64, "--backend is empty"},
		{"bench: no such directory", []string{"bench", "--backend", "redis://127.0.0.1:1", "--html", "no/such/dir.html"}, 1, "no such file"},
		{"malformed URL", []string{"run", "--backend", "file:/x", "a", "--", "true"}, 78, "URL"},
		{"unknown scheme", []string{"run", "--backend", "nothing://host", "a", "--", "true"}, 78, "no backend for scheme \"nothing\": have etcd, "},
		{"wrong TTL in the URL", []string{"run", "--backend", "file://?dlock.ttl=1ns", "a", "--", "true"}, 78, "invalid TTL"},
		{"negative TTL in the URL", []string{"run", "--backend", "file://?dlock.ttl=-1s", "a", "--", "true"}, 78, "invalid TTL"},
		{"grace with the default TTL of the URL", []string{"run", "--backend", "file://?dlock.ttl=0s", "--grace", "1s", "a", "--", "true"}, 0, ""},
		{"lock in memory", []string{"run", "--backend", "memory://", "a", "--", "true"}, 64, "memory"},
		{"demo in memory", []string{"demo", "--backend", "memory://"}, 64, "memory"},
		{"demo of one", []string{"demo", "--workers", "1"}, 64, "at least 2"},
		{"guard by hand", []string{"guard"}, 64, "dlock run"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			if err := os.WriteFile(filepath.Join(s.dir, "script"), []byte("#!/nowhere/interpreter\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.start(test.args...).expect(test.code, test.message)
		})
	}
}

// TestExitCodeOfKind covers what no embedded backend says. The kind counts,
// whatever it was caused by.
func TestExitCodeOfKind(t *testing.T) {
	for kind, want := range map[error]int{
		dlock.ErrUnavailable:   69,
		dlock.ErrLost:          74,
		dlock.ErrHeld:          75,
		dlock.ErrAuth:          77,
		dlock.ErrInvalidConfig: 78,
		dlock.ErrConflict:      78,
		dlock.ErrClosed:        1,
	} {
		for _, cause := range []error{nil, dlock.ErrHeld, dlock.ErrInvalidName} {
			err := fmt.Errorf("context: %w", &dlock.Error{Op: "lock", Name: "a", Kind: kind, Err: cause})
			if got := exitCode(err); got != want {
				t.Errorf("%v: %d, want %d", err, got, want)
			}
		}
	}
}

func TestHelpListsExitCodes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"run", "--help"}, {"help", "run"}} {
		code, p := newShell(t).run(args...)
		if code != 0 {
			t.Fatalf("%q: exit code %d", args, code)
		}
		for _, e := range exits {
			if line := strconv.Itoa(e.code) + "  " + e.meaning; !strings.Contains(p.out.String(), line) {
				t.Errorf("%q: no %q in the help", args, line)
			}
		}
	}
}

func TestTwoShells(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	first := s.start("run", "job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	s.start("run", "-n", "job", "--", "true").expect(75, `dlock: the lock "job" is held by another`)
	s.start("run", "-n", "-s", "job", "--", "true").expect(75, "held")
	s.start("run", "-w", "0", "job", "--", "true").expect(75, "held")
	s.start("run", "-w", "50ms", "job", "--", "true").expect(75, "waited for 50ms")
	s.start("run", "-n", "-E", "9", "job", "--", "true").expect(9, "held")
	s.start("run", "-n", "-E", "0", "job", "--", "true").expect(0, "")
	s.start("run", "-n", "other", "--", "true").expect(0, "")
	first.signal(syscall.SIGTERM)
	first.expect(128+int(syscall.SIGTERM), "")
	s.start("run", "-n", "job", "--", "true").expect(0, "")
}

func TestSharedLock(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.start("run", "-s", "job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	s.start("run", "-n", "-s", "job", "--", "true").expect(0, "")
	s.start("run", "-n", "job", "--", "true").expect(75, "held")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := newShell(t, "DLOCK_TOKEN=stale", "OTHER=kept")
	token := func() uint64 {
		_, p := s.run("run", "a job", "--", "sh", "-c", `echo "$DLOCK_NAME/$OTHER/${DLOCK_URL-unset}/$DLOCK_TOKEN"`)
		rest, ok := strings.CutPrefix(p.out.String(), "a job/kept//")
		n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
		if !ok || err != nil {
			t.Fatalf("the command found %q", p.out.String())
		}
		return n
	}
	if first, second := token(), token(); first == 0 || second <= first {
		t.Errorf("token %d, then %d", first, second)
	}
}

// A dlock under dlock run has no URL. It must not lock files of this machine in place of
// what the outer one locks.
func TestRunInARun(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	inner := []string{"job", "--", "./dlock", "run", "-n", "job", "--", "true"}
	s.start(append([]string{"run"}, inner...)...).expect(exitConfig, "DLOCK_URL is set and empty")

	outer := append([]string{"-u", urlVariable, "XDG_STATE_HOME=" + s.dir, s.program, "run"}, inner...)
	onFiles := exec.Command("env", outer...)
	onFiles.Dir = s.dir
	if said, _ := onFiles.CombinedOutput(); onFiles.ProcessState.ExitCode() != exitHeld {
		t.Errorf("the inner one exits with %d: %s", onFiles.ProcessState.ExitCode(), said)
	}
}

func TestStandardStreams(t *testing.T) {
	s := newShell(t)
	cmd := s.command("run", "a", "--", "sh", "-c", "cat; echo problem >&2")
	cmd.Stdin = strings.NewReader("input")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || string(out) != "input" || problems.String() != "problem\n" {
		t.Errorf("%q, %q, %v", out, problems.String(), err)
	}
}

// TestNoDescriptorLeaks: a lock file or the guard's pipe in the hands of a
// command that lives on would keep the lock or the guard.
func TestNoDescriptorLeaks(t *testing.T) {
	s := newShell(t)
	list := []string{"sh", "-c", "ls /proc/self/fd"}
	_, p := s.run(append([]string{"run", "a", "--"}, list...)...)
	without := exec.Command(list[0], list[1:]...)
	var stderr strings.Builder
	without.Stderr = &stderr
	want, err := without.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := p.out.String(); got != string(want) {
		t.Errorf("the command has the descriptors %q, want %q", strings.Fields(got), strings.Fields(string(want)))
	}
}

func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
		"QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			p := s.start("run", "job", "--", "sh", "-c",
				`exec 2> /dev/null; trap 'exit 42' `+name+`; echo > held; while :; do sleep 0.01; done`)
			s.await("held")
			p.signal(sig)
			p.expect(42, "")
		})
	}
}

func TestUnheededSignalKillsCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p := s.start("run", "job", "--", "sh", "-c", family)
	pids := s.awaitPIDs("pids", familySize)
	p.signal(syscall.SIGHUP) // a shell has its background jobs ignore SIGINT
	p.expect(128+int(syscall.SIGHUP), "")
	awaitGone(t, pids...)
}

func TestSignalEndsWait(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.start("run", "job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		before := s.fileLocks()
		p := s.start("run", "job", "--", "true")
		until(t, "use of a lock file", func() bool { return s.fileLocks() > before })
		p.signal(sig)
		p.expect(128+int(sig), "")
	}
}

// fileLocks counts the kernel's locks on the lock files.
func (s *shell) fileLocks() int {
	s.t.Helper()
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		s.t.Fatal(err)
	}
	count := 0
	files, _ := filepath.Glob(filepath.Join(s.locks(), "*"))
	for _, file := range files {
		var st syscall.Stat_t
		if err := syscall.Stat(file, &st); err == nil {
			count += strings.Count(string(all), ":"+strconv.FormatUint(st.Ino, 10)+" ")
		}
	}
	return count
}

func TestIgnoredSignalStaysIgnored(t *testing.T) {
	s := newShell(t)
	cmd := exec.Command("sh", "-c", `trap '' HUP; exec ./dlock run job -- sh -c 'kill -HUP $$; kill -HUP $PPID; echo alive'`)
	cmd.Dir, cmd.Env = s.dir, s.command().Env
	if out, err := cmd.Output(); err != nil || string(out) != "alive\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestKilledHolder(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	first := s.start("run", "job", "--", "sh", "-c", family)
	pids := s.awaitPIDs("pids", familySize)
	second := s.start("run", "job", "--", "sh", "-c", "exit 5")
	first.signal(syscall.SIGKILL)
	second.expect(5, "")
	awaitGone(t, pids...)
}

// timeout makes a process group of its own, in which it runs its command.
func TestCommandWithOwnGroup(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		end  func(*shell, *process)
	}{
		{"signal", nil, func(_ *shell, p *process) {
			p.signal(syscall.SIGTERM)
			p.expect(128+int(syscall.SIGTERM), "")
		}},
		{"loss", []string{"-t", "3s", "--grace", "1ms"}, func(s *shell, p *process) {
			s.evict()
			p.expect(exitLost, "lost")
		}},
		{"killed", nil, func(_ *shell, p *process) {
			p.signal(syscall.SIGKILL)
			p.wait()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			args := append([]string{"run"}, test.args...)
			p := s.start(append(args, "job", "--", "timeout", "300", "sh", "-c", family)...)
			pids := s.awaitPIDs("pids", familySize)
			test.end(s, p)
			awaitGone(t, pids...)
			s.start("run", "-n", "job", "--", "true").expect(0, "")
		})
	}
}

func TestLossEndsCommand(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p := s.start("run", "-t", "10s", "--grace", "999ms", "job", "--", "sh", "-c", `trap 'echo > warned' TERM; `+family)
	pids := s.awaitPIDs("pids", familySize)
	s.evict()
	p.expect(74, "lost")
	awaitGone(t, pids...)
	s.await("warned")
	s.start("run", "-n", "job", "--", "true").expect(0, "")
}

func TestLossEndsCommandThatDoesNotListen(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p := s.start("run", "-t", "3s", "--grace", "1ms", "job", "--", "sh", "-c", `trap '' TERM; `+family)
	pids := s.awaitPIDs("pids", familySize)
	s.evict()
	p.expect(74, "lost")
	awaitGone(t, pids...)
}

// evict takes all locks away behind their holders' backs.
func (s *shell) evict() {
	s.t.Helper()
	files, err := os.ReadDir(s.locks())
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no lock files: %v", err)
	}
	for _, f := range files {
		if err := os.RemoveAll(filepath.Join(s.locks(), f.Name())); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestSentinelIsSilent runs a command under a lock on the master that Sentinels
// name: of them, of which the client library would say much, nothing is heard.
func TestSentinelIsSilent(t *testing.T) {
	t.Parallel()
	w := server.StartWatched(t, 1, server.Redis{}, time.Minute)
	url := "redis+sentinel://" + w.Sentinels[0].Addr() + "/" + server.PrimaryName
	newShell(t).start("run", "--backend", url, "a", "--", "true").expect(0, "")
}

func TestNoSecretsInOutput(t *testing.T) {
	const canary = "CANARY"
	const url = "redis://user:" + canary + "@127.0.0.1:1/"
	for _, args := range [][]string{
		{"run", "--backend", url, "a", "--", "true"},
		{"run", "--backend", "redis://user:" + canary + "@127.0.0.1:port", "a", "--", "true"},
		{"run", "--backend", "redis://user:" + canary + "/@127.0.0.1", "a", "--", "true"},
		{"run", "--backend", "file://user:" + canary + "@/tmp?x=" + canary, "a", "--", "true"},
		{"run", "-b" + url, "a", "--", "true"},
		{"run", "-t", url, "a", "--", "true"},
		{"run", url},
		{"demo", url},
		{"demo", "--backend", url},
		{"help", url},
		{url},
	} {
		s := newShell(t)
		code, p := s.run(args...)
		if code == 0 {
			t.Errorf("%q succeeded", args)
		}
		if strings.Contains(p.out.String()+p.err.String(), canary) {
			t.Errorf("%q printed %q and %q", args, p.out.String(), p.err.String())
		}
	}
	s := newShell(t, urlVariable+"="+url)
	code, p := s.run("run", "a", "--", "true")
	if code == 0 || strings.Contains(p.err.String(), canary) {
		t.Errorf("exit code %d with %q", code, p.err.String())
	}
}

// A command that ends while the server is silent does not keep dlock.
func TestEndsSoonAfterItsCommand(t *testing.T) {
	redis := server.Start(t, server.Redis{})
	url := "redis://" + redis.Addr()
	s := newShell(t)
	p := s.start("run", "--backend", url, "job", "--", "sh", "-c", "echo > held; while [ -e held ]; do sleep 0.01; done; echo > over")
	s.await("held")
	pause(t, redis)
	if err := os.Remove(filepath.Join(s.dir, "held")); err != nil {
		t.Fatal(err)
	}
	s.await("over")
	start := time.Now()
	p.expect(0, "could not be given back")
	if took := time.Since(start); took > 5*time.Second { // two, and as much as a busy machine may need
		t.Errorf("dlock ended %v after its command", took)
	}
}

// A command that needs long to clean up begins while the lock is still held: it has
// ended when another client gets the lock.
func TestGraceBeforeTheLossOfALock(t *testing.T) {
	t.Parallel()
	redis := server.Start(t, server.Redis{})
	url := "redis://" + redis.Addr()
	proxy, err := faultnet.Listen(redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	s := newShell(t)
	p := s.start("run", "--backend", "redis://"+proxy.Addr(), "-t", "10", "--grace", "5", "job", "--", "sh", "-c",
		`exec 2> /dev/null; trap 'sleep 2; echo > cleaned; exit 3' TERM; echo > held; while :; do sleep 0.01; done`)
	s.await("held")
	next := s.start("run", "--backend", url, "job", "--", "sh", "-c", "test -e cleaned")
	proxy.Blackhole(faultnet.BothWays)
	next.expect(0, "")
	p.expect(74, "not renewed in time")
}

// A wait that its server does not survive ends when it was to end.
func TestWaitEndsThoughTheServerIsSilent(t *testing.T) {
	redis := server.Start(t, server.Redis{})
	url := "redis://" + redis.Addr()
	s := newShell(t)
	s.start("run", "--backend", url, "job", "--", "sh", "-c", "echo > held; exec sleep 300")
	s.await("held")
	p := s.start("run", "--backend", url, "-w", "2", "job", "--", "true")
	pause(t, redis)
	start := time.Now()
	if code := p.wait(); code != 75 && code != 69 {
		t.Errorf("exit code %d, want 75 or 69", code)
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("a wait of 2s ended after %v", took)
	}
}

func pause(t *testing.T, s *server.Server) {
	t.Helper()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Resume() })
}

func TestMinHold(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	first := s.start("run", "--min-hold", "300", "job", "--", "sh", "-c", "echo > over")
	s.await("over")
	s.start("run", "-n", "job", "--", "true").expect(75, "held")
	first.signal(syscall.SIGTERM)
	first.expect(0, "")
	s.start("run", "-n", "job", "--", "true").expect(0, "")
}

// The command cannot read the credentials of dlock. Root can read anything, so
// that the test, if it is root, has another user try.
func TestCommandCannotReadTheEnvironmentOfDlock(t *testing.T) {
	s := newShell(t)
	cmd := s.command("run", "job", "--", "sh", "-c", "cat /proc/$PPID/environ")
	if os.Getuid() == 0 {
		const nobody = 65534
		if err := errors.Join(s.copyProgram(), os.Chown(s.locks(), nobody, nobody)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(out), "://") || !strings.Contains(string(out), "denied") {
		t.Errorf("%v: %q", err, out)
	}
}

// copyProgram puts a copy of dlock where any user can run it.
func (s *shell) copyProgram() error {
	path := filepath.Join(s.dir, "dlock")
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(path), os.WriteFile(path, program, 0o755),
		os.Chmod(path, 0o755), os.Chmod(s.dir, 0o755), os.Chmod(filepath.Dir(s.dir), 0o755))
}

func TestVersion(t *testing.T) {
	code, p := newShell(t).run("--version")
	if code != 0 || !strings.HasPrefix(p.out.String(), "dlock version ") || !strings.Contains(p.out.String(), "go1.") {
		t.Errorf("exit code %d with %q", code, p.out.String())
	}
}

// What a server says does nothing to a terminal.
func TestMessagesArePrintable(t *testing.T) {
	for err, want := range map[error]string{
		errors.New("ERR \x1b]0;gone\x07 first\nsecond"):                                                                                                               `dlock: ERR \x1b]0;gone\a first; second`,
		&dlock.Error{Op: "trylock", Name: "a\x1b", Kind: dlock.ErrHeld}:                                                                                               `dlock: the lock "a\x1b" is held by another`,
		&dlock.Error{Op: "lock", Kind: dlock.ErrUnavailable, Err: errors.New("dial: dlock: no route")}:                                                                `dlock: the backend is not available: dial: no route`,
		&dlock.Error{Op: "lock", Kind: dlock.ErrUnavailable, Err: fmt.Errorf("node 1: %w; node 2: %[1]w", backend.Fail(dlock.ErrUnavailable, errors.New("refused")))}: `dlock: the backend is not available: node 1: refused; node 2: refused`,
	} {
		var b strings.Builder
		if complain(&b, err); b.String() != want+"\n" {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
}
