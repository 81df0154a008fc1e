package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A workerSet is the workers of one round, seen from the demo. They end with it.
type workerSet struct {
	workers []*worker
	kill    func() // kills all workers
}

type worker struct {
	cmd      *exec.Cmd
	in       io.WriteCloser // a byte starts the worker, the end ends it
	out      io.Reader
	problems bytes.Buffer
}

// startWorkers starts the workers, who wait for the start. They end with ctx.
func (d *demo) startWorkers(ctx context.Context, s *stockFile, lock string) (*workerSet, error) {
	all := &workerSet{}
	ctx, all.kill = context.WithCancel(ctx)
	for number := range d.workers {
		c := d.worker(ctx, s, number, lock)
		if err := c.start(); err != nil {
			all.kill()
			_ = all.wait()
			return nil, err
		}
		all.workers = append(all.workers, c)
	}
	return all, nil
}

// worker prepares a process. The URL may hold a password, so it goes by the
// environment: others can see arguments.
func (d *demo) worker(ctx context.Context, s *stockFile, number int, lock string) *worker {
	args := []string{workerName, "--dir=" + s.dir, "--number=" + strconv.Itoa(number), "--lock=" + lock}
	return &worker{cmd: selfCommand(ctx, args, append(os.Environ(), urlVariable+"="+d.url)...)}
}

func (c *worker) start() (err error) {
	setOwnGroup(c.cmd) // what a terminal sends is for the demo to heed
	c.cmd.Stderr = &c.problems
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return err
	}
	return c.cmd.Start()
}

// open lets the workers begin as soon as each is there, or is gone.
func (all *workerSet) open() time.Time {
	for _, c := range all.workers {
		_, _ = io.ReadFull(c.out, make([]byte, 1))
	}
	now := time.Now()
	for _, c := range all.workers {
		_, _ = c.in.Write([]byte{'\n'})
	}
	return now
}

// wait waits until all workers have left. The first with a problem has all
// others killed.
func (all *workerSet) wait() error {
	defer all.kill()
	var left sync.WaitGroup
	var once sync.Once
	var first error
	for _, c := range all.workers {
		left.Go(func() {
			if err := c.wait(); err != nil {
				once.Do(func() { first = err; all.kill() })
			}
		})
	}
	left.Wait()
	return first
}

// wait returns what the worker complained of, with the worker's exit code.
func (c *worker) wait() error {
	err := c.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return coded{max(exit.ExitCode(), exitFailed), errors.New(strings.TrimSpace(c.problems.String()))}
	}
	return err
}
