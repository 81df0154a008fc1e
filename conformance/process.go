package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/clock"
)

// childEnv makes a test binary that Main runs a process of the suite: it names
// the backend's URL.
const childEnv = "DLOCK_CONFORMANCE_URL"

// Main runs the tests of a binary that calls Run, or, in a process that the
// suite has started, the process's part. Call it from TestMain and exit with
// its result.
func Main(m *testing.M) int {
	if url, ok := os.LookupEnv(childEnv); ok {
		if err := serve(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	return m.Run()
}

// A process is another process with a client of its own, driven line by line:
// each line is a number, a verb and its arguments; each answer is the number,
// the time, and ok with a result or the text of an error.
type process struct {
	s     *scenario
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu    sync.Mutex
	last  int
	calls map[int]chan answer
	gone  chan struct{}
}

type answer struct {
	at     int64
	result string
	err    error
}

// process starts another process. It is killed at the end of the property.
func (s *scenario) process() *process {
	s.Helper()
	p := &process{s: s, calls: make(map[int]chan answer), gone: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], "-test.run=^$")
	p.cmd.Env = append(os.Environ(), childEnv+"="+s.URL)
	p.cmd.Stderr = os.Stderr
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	s.ok(err)
	stdout, err := p.cmd.StdoutPipe()
	s.ok(err)
	s.ok(p.cmd.Start())
	go p.read(stdout)
	s.Cleanup(p.kill)
	return p
}

func (p *process) read(stdout io.Reader) {
	defer close(p.gone)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 4)
		if len(f) < 4 {
			continue
		}
		id, err1 := strconv.Atoi(f[0])
		at, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		a := answer{at: at, result: f[3]}
		if f[2] != "ok" {
			a.err = errors.New(f[3])
		}
		p.mu.Lock()
		ch := p.calls[id]
		delete(p.calls, id)
		p.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
}

// send begins a call. The answer comes in its own time.
func (p *process) send(verb string, args ...any) <-chan answer {
	p.s.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	ch := make(chan answer, 1)
	p.calls[p.last] = ch
	line := fmt.Sprint(p.last, " ", verb)
	for _, a := range args {
		line += " " + strconv.Quote(fmt.Sprint(a))
	}
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		p.s.Fatalf("process: %v", err)
	}
	return ch
}

// wait returns the answer to a call.
func (p *process) wait(ch <-chan answer) answer {
	p.s.Helper()
	select {
	case a := <-ch:
		return a
	case <-p.gone:
		select {
		case a := <-ch:
			return a
		default:
			p.s.Fatal("the process is gone")
		}
	case <-p.s.ctx.Done():
		p.s.Fatal("the process does not answer")
	}
	return answer{}
}

// do makes a call and fails the test if the process reports an error.
func (p *process) do(verb string, args ...any) answer {
	p.s.Helper()
	a := p.wait(p.send(verb, args...))
	if a.err != nil {
		p.s.Fatalf("process: %s: %v", verb, a.err)
	}
	return a
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// stop sends SIGSTOP and returns when all threads have stopped: until then the
// process may still take a lock.
func (p *process) stop() {
	p.s.Helper()
	p.signal(syscall.SIGSTOP)
	p.s.eventually("the process has stopped", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		p.s.ok(err)
		for _, path := range stats {
			stat, err := os.ReadFile(path)
			_, state, _ := strings.Cut(string(stat), ") ")
			if err == nil && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.gone
	_ = p.cmd.Wait()
}

// serve is the other side of a process.
func serve(url string, in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	w := &worker{url: url, leases: make(map[string]*dlock.Lease), lost: make(map[string]int64)}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		verb, args := parseCall(rest)
		go func() {
			result, err := w.call(verb, args)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(out, "%s %d error %q\n", id, clock.Now(), err.Error())
				return
			}
			fmt.Fprintf(out, "%s %d ok %s\n", id, clock.Now(), result)
		}()
	}
	return lines.Err()
}

func parseCall(s string) (verb string, args []string) {
	verb, s, _ = strings.Cut(s, " ")
	for s != "" {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return verb, args
		}
		arg, _ := strconv.Unquote(quoted)
		args = append(args, arg)
		s = strings.TrimPrefix(s[len(quoted):], " ")
	}
	return verb, args
}

// A worker is the client of a process, with its leases by handle.
type worker struct {
	url string

	mu     sync.Mutex
	client *dlock.Client
	leases map[string]*dlock.Lease
	lost   map[string]int64 // when the lease ended
}

// call does what a line asks for:
//
//	open TTL                    opens the client
//	lock HANDLE NAME MODE       waits; the result is the token
//	try HANDLE NAME MODE        does not
//	unlock HANDLE
//	state HANDLE                the token and, if it has ended, why
//	lost HANDLE                 waits for the end; the result is its time
//	sell HANDLE NAME FILE N     N times: lock, add one to the number in FILE, unlock;
//	                            the result is each interval as start-end-token
//	exit                        ends the process at once
func (w *worker) call(verb string, args []string) (string, error) {
	switch verb {
	case "open":
		return "", w.open(args[0])
	case "lock", "try":
		return w.lock(verb == "lock", args[0], args[1], args[2])
	case "minhold":
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return "", err
		}
		return w.lock(true, args[0], args[1], "exclusive", dlock.WithMinHold(d))
	case "unlock":
		return "", w.lease(args[0]).Unlock(context.Background())
	case "state":
		l := w.lease(args[0])
		return fmt.Sprintf("%v %v", l.Token(), l.Err()), nil
	case "lost":
		<-w.lease(args[0]).Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		return strconv.FormatInt(w.lost[args[0]], 10), nil
	case "sell":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return "", err
		}
		return w.sell(args[0], args[1], n)
	case "exit":
		os.Exit(0)
	}
	return "", errors.New("no such verb: " + verb)
}

func (w *worker) open(ttl string) error {
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	c, err := dlock.Open(context.Background(), w.url, &dlock.Options{TTL: d})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = c
	return err
}

func (w *worker) lock(wait bool, handle, name, mode string, opts ...dlock.Option) (string, error) {
	m := w.client.RWMutex(name, opts...)
	var l dlock.Locker = m
	if mode == "shared" {
		l = m.RLocker()
	}
	take := l.Lock
	if !wait {
		take = l.TryLock
	}
	lease, err := take(context.Background())
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	w.leases[handle] = lease
	w.mu.Unlock()
	go func() {
		<-lease.Done()
		w.mu.Lock()
		w.lost[handle] = clock.Now()
		w.mu.Unlock()
	}()
	return strconv.FormatUint(lease.Token(), 10), nil
}

func (w *worker) lease(handle string) *dlock.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[handle]
}

// sell adds to the number in a file that only the lock protects.
func (w *worker) sell(name, file string, n int) (string, error) {
	var out []string
	for range n {
		lease, err := w.client.Mutex(name).Lock(context.Background())
		if err != nil {
			return "", err
		}
		start := clock.Now()
		err = addOne(file)
		end := clock.Now()
		token := lease.Token()
		if e := lease.Unlock(context.Background()); err == nil {
			err = e
		}
		if err != nil {
			return "", err
		}
		out = append(out, fmt.Sprintf("%d-%d-%d", start, end, token))
	}
	return strings.Join(out, ","), nil
}

func addOne(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
}
