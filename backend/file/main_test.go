//go:build linux

package file

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const limit = 2 * time.Minute

// roleEnv makes the test binary act as another process: "role directory".
const roleEnv = "DLOCK_FILE_TEST_ROLE"

func TestMain(m *testing.M) {
	role, dir, child := strings.Cut(os.Getenv(roleEnv), " ")
	if !child {
		os.Exit(m.Run())
	}
	c, err := dlock.Open(context.Background(), "file://"+dir, &dlock.Options{TTL: time.Second})
	if err == nil {
		err = map[string]func(*dlock.Client, string) error{
			"write": func(c *dlock.Client, _ string) error { return holdUntilTold(c.Mutex("lock")) },
			"read":  func(c *dlock.Client, _ string) error { return holdUntilTold(c.RWMutex("lock").RLocker()) },
			"count": countUp,
		}[role](c, dir)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// holdUntilTold reports the token it got and unlocks when stdin is closed.
func holdUntilTold(l dlock.Locker) error {
	lease, err := l.Lock(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(lease.Token())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return lease.Unlock(context.Background())
}

const counts = 100

// countUp increments the number in a plain file, which only a lock makes safe.
func countUp(c *dlock.Client, dir string) error {
	ctx := context.Background()
	for range counts {
		err := dlock.Do(ctx, c.Mutex("lock"), func(context.Context, *dlock.Lease) error {
			n, err := readCount(dir)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "count"), []byte(strconv.Itoa(n+1)), 0o600)
		})
		if err != nil {
			return err
		}
	}
	return c.Close(ctx)
}

func readCount(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "count"))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

// A process is another process that acts in a role.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // what it prints; closed when it has ended
}

func start(t *testing.T, role, dir string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role+" "+dir, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{t: t, cmd: cmd, stdin: stdin, lines: make(chan string, 16)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		for range p.lines {
		}
		_ = cmd.Wait()
	})
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// token waits until the process holds the lock.
func (p *process) token() uint64 {
	p.t.Helper()
	select {
	case line := <-p.lines:
		n, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			p.t.Fatalf("process said %q", line)
		}
		return n
	case <-time.After(limit):
		p.t.Fatal("process did not get the lock")
	}
	return 0
}

// stop stops the process and waits until all of it stands still.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, "the process is stopped", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		must(p.t, err)
		return !slices.ContainsFunc(tasks, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}

// unlock tells the process to unlock.
func (p *process) unlock() { p.stdin.Close() }

func newClient(t *testing.T, dir string) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(t.Context(), "file://"+dir, &dlock.Options{TTL: time.Second})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close(context.Background())) })
	return c
}

func newClients(t *testing.T, dir string, n int) []*dlock.Client {
	t.Helper()
	out := make([]*dlock.Client, n)
	for i := range out {
		out[i] = newClient(t, dir)
	}
	return out
}

func mustLock(t *testing.T, l dlock.Locker) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	lease, err := l.Lock(ctx)
	must(t, err)
	return lease
}

func mustUnlock(t *testing.T, l *dlock.Lease) {
	t.Helper()
	must(t, l.Unlock(context.Background()))
}

// A call is a Lock under way in a goroutine.
type call struct {
	lease *dlock.Lease
	err   error
	done  chan struct{}
}

func lockLater(ctx context.Context, l dlock.Locker) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		c.lease, c.err = l.Lock(ctx)
		close(c.done)
	}()
	return c
}

func (c *call) get(t *testing.T) *dlock.Lease {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(limit):
		t.Fatal("Lock did not return")
	}
	must(t, c.err)
	return c.lease
}

func (c *call) waiting() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// queue returns how many different positions there are for "lock".
func queue(t *testing.T, dir string) int {
	t.Helper()
	l, err := openLock(filepath.Join(dir, "lock.lock"), os.O_RDONLY)
	must(t, err)
	defer l.close()
	c, err := l.read()
	must(t, err)
	return countPositions(t, l, c.firstInQueue(), lastPosition)
}

func countPositions(t *testing.T, l *lockFile, first, last int64) int {
	at, length, err := findLock(l, backend.Exclusive, first, last)
	must(t, err)
	if length == 0 {
		return 0
	}
	return 1 + countPositions(t, l, first, at-1) + countPositions(t, l, at+1, last)
}

func waitForQueue(t *testing.T, dir string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d in the queue", n), func() bool { return queue(t, dir) == n })
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never came true: " + what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openLock opens the lock file at path.
func openLock(path string, flag int) (*lockFile, error) {
	d, err := openDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer d.leave()
	return d.open(filepath.Base(path), flag)
}
