package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/clock"
)

// A Worker is how the nemesis sees a worker: a process, or goroutines of this
// one where the backend reaches no further.
type Worker struct {
	Job

	cmd    *exec.Cmd // nil: in this process
	stdin  io.WriteCloser
	output string        // the file that takes what the process says
	gone   chan struct{} // closed when it has ended
	err    error         // why, once gone is closed

	mu      sync.Mutex
	reached int
	news    chan struct{} // closed and replaced when reached changes
	trace   Trace
}

// A Trace is what the nemesis knows of a worker's life.
type Trace struct {
	Worker int
	Events []Event
	Pauses []Span // SIGSTOP until SIGCONT
	Ended  int64  // by SIGKILL; 0: in good order
}

// A Span is a time. An end of 0 is open.
type Span struct{ From, To int64 }

// start runs the worker in a process of its own.
func start(j Job) (*Worker, error) {
	w := newWorker(j)
	w.output = filepath.Join(j.Dir, fmt.Sprintf("worker-%d.out", j.Worker))
	var stdout io.Reader
	var err error
	if w.cmd, w.stdin, stdout, err = spawn(j, w.output); err != nil {
		return nil, err
	}
	go func() {
		w.read(stdout)
		w.err = w.cmd.Wait()
		close(w.gone)
	}()
	return w, nil
}

// spawn runs this program again to do j. What it says to people goes to the file
// output. It ends with this process.
func spawn(j Job, output string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout io.Reader, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, nil, nil, err
	}
	said, err := os.Create(output)
	if err != nil {
		return nil, nil, nil, err
	}
	defer said.Close()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	cmd.Stderr = said
	dieWithParent(cmd)
	if stdin, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, stdin, stdout, cmd.Start()
}

// startHere runs the worker in this process.
func startHere(j Job, open func() (*dlock.Client, error)) *Worker {
	w := newWorker(j)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	w.stdin = stdin
	go w.read(stdout)
	go func() {
		w.err = serve(j, open, in, out)
		close(w.gone)
	}()
	return w
}

func newWorker(j Job) *Worker {
	return &Worker{Job: j, gone: make(chan struct{}), news: make(chan struct{}), trace: Trace{Worker: j.Worker}}
}

func (w *Worker) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "reached %d", &n); err != nil {
			continue
		}
		w.mu.Lock()
		w.reached = n
		close(w.news)
		w.news = make(chan struct{})
		w.mu.Unlock()
	}
}

// ask asks the worker to reach checkpoint n.
func (w *Worker) ask(n int) error {
	_, err := fmt.Fprintf(w.stdin, "checkpoint %d\n", n)
	return err
}

// await returns when the worker has reached checkpoint n.
func (w *Worker) await(ctx context.Context, n int) error {
	for {
		w.mu.Lock()
		isReached, news := w.reached >= n, w.news
		w.mu.Unlock()
		if isReached {
			return nil
		}
		select {
		case <-news:
		case <-w.gone:
			return fmt.Errorf("worker %d has ended: %w", w.Job.Worker, errors.Join(w.err, errors.New(w.said())))
		case <-ctx.Done():
			return fmt.Errorf("worker %d does not get on", w.Job.Worker)
		}
	}
}

// said is what the process wrote to its standard error.
func (w *Worker) said() string {
	text, _ := os.ReadFile(w.output) // one in this process has none
	return string(text)
}

// quit ends the worker in good order.
func (w *Worker) quit(ctx context.Context) error {
	if err := w.stdin.Close(); err != nil {
		return err
	}
	select {
	case <-w.gone:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("worker %d does not end", w.Job.Worker)
	}
}

// end ends the worker's process by a signal.
func (w *Worker) end(sig syscall.Signal) error {
	w.mu.Lock()
	w.trace.Ended = clock.Now() // before: somebody else may have the lock before we hear of the end
	w.mu.Unlock()
	err := w.cmd.Process.Signal(sig)
	<-w.gone
	return err
}

// stop sends SIGSTOP and returns when no thread runs any more.
func (w *Worker) stop(ctx context.Context) error {
	w.mu.Lock()
	w.trace.Pauses = append(w.trace.Pauses, Span{From: clock.Now()})
	w.mu.Unlock()
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !stopped(w.cmd.Process.Pid) {
		if !backend.Sleep(ctx, time.Millisecond) {
			return fmt.Errorf("worker %d does not stop", w.Job.Worker)
		}
	}
	return nil
}

// resume lets a stopped process run on.
func (w *Worker) resume() error {
	err := w.cmd.Process.Signal(syscall.SIGCONT)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace.Pauses[len(w.trace.Pauses)-1].To = clock.Now()
	return err
}

func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(stat), ") ")
		if err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// history returns the trace with the worker's journal. The worker has ended.
func (w *Worker) history() (Trace, error) {
	events, err := readJournal(w.journal())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace.Events = events
	return w.trace, err
}
