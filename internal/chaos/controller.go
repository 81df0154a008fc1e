package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// A controller is how a test commands an executor, in another process or in this one.
type controller struct {
	stdin io.WriteCloser
	cmd   *exec.Cmd // nil: in this process
	gone  chan struct{}

	mu     sync.Mutex
	events []Event
	news   chan struct{}
}

// startExecutor starts an executor, in a process of its own unless open is given.
func startExecutor(j Job, open func(n int) (*dlock.Client, error)) (*controller, error) {
	c := &controller{gone: make(chan struct{}), news: make(chan struct{})}
	if open != nil {
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		c.stdin = stdin
		go func() { _ = out.CloseWithError(execute(j, open, in, out)) }()
		go c.read(stdout)
		return c, nil
	}
	var stdout io.Reader
	var err error
	c.cmd, c.stdin, stdout, err = spawn(j, filepath.Join(j.Dir, fmt.Sprintf("executor-%x.out", j.Worker)))
	if err != nil {
		return nil, err
	}
	go func() {
		c.read(stdout)
		_ = c.cmd.Wait() // that it is gone is all that matters
	}()
	return c, nil
}

func (c *controller) read(from io.Reader) {
	defer close(c.gone)
	decoder := json.NewDecoder(from)
	for {
		var e Event
		if decoder.Decode(&e) != nil {
			return
		}
		c.mu.Lock()
		c.events = append(c.events, e)
		close(c.news)
		c.news = make(chan struct{})
		c.mu.Unlock()
	}
}

func (c *controller) command(verb string, n int) error {
	_, err := fmt.Fprintln(c.stdin, verb, n)
	return err
}

// await returns the first event of lock n, after the time since, that is one of the
// kinds.
func (c *controller) await(ctx context.Context, n int, since int64, kinds ...Kind) (Event, error) {
	for {
		c.mu.Lock()
		events, news := c.events, c.news
		c.mu.Unlock()
		for _, e := range events {
			for _, k := range kinds {
				if e.Kind == k && e.Call == n && e.At > since {
					return e, nil
				}
			}
		}
		select {
		case <-news:
		case <-c.gone:
			return Event{}, errors.New("the executor is gone")
		case <-ctx.Done():
			return Event{}, fmt.Errorf("lock %x: none of %v", n, kinds)
		}
	}
}

// stalled says whether the process did not run for some time after since.
func (c *controller) stalled(since int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Kind == Stalled && e.At > since {
			return true
		}
	}
	return false
}

// close ends the executor, and kills its process if it does not end.
func (c *controller) close() {
	c.stdin.Close()
	select {
	case <-c.gone:
	case <-time.After(healthLimit):
		if c.cmd != nil {
			_ = c.cmd.Process.Kill()
		}
	}
}
