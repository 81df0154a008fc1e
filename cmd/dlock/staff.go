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
	"syscall"
	"time"
)

// A staff is the clerks of one shop, seen from the demo. They end with it.
type staff struct {
	clerks []*clerk
	door   *os.File // its end is the opening of the shop
	fire   func()   // kills all clerks
}

type clerk struct {
	cmd      *exec.Cmd
	out      io.Reader
	problems bytes.Buffer
}

// hireAll starts the clerks, who wait for the opening. They end with ctx.
func (d *demo) hireAll(ctx context.Context, s *shop, lock string) (*staff, error) {
	opening, door, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer opening.Close()
	all := &staff{door: door}
	ctx, all.fire = context.WithCancel(ctx)
	for number := range d.clerks {
		c := d.clerk(ctx, s, number, lock)
		c.cmd.ExtraFiles = []*os.File{opening}
		if err := c.start(); err != nil {
			all.fire()
			_ = all.wait()
			return nil, err
		}
		all.clerks = append(all.clerks, c)
	}
	return all, nil
}

// clerk prepares a process. The URL may hold a password, so it goes by the
// environment: others can see arguments.
func (d *demo) clerk(ctx context.Context, s *shop, number int, lock string) *clerk {
	args := []string{clerkName, "--dir=" + s.dir, "--number=" + strconv.Itoa(number), "--lock=" + lock}
	return &clerk{cmd: selfCommand(ctx, args, append(os.Environ(), urlVariable+"="+d.url)...)}
}

func (c *clerk) start() (err error) {
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what a terminal sends is for the demo to heed
	c.cmd.Stderr = &c.problems
	if _, err = c.cmd.StdinPipe(); err != nil { // its end ends the clerk
		return err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return err
	}
	return c.cmd.Start()
}

// open lets the clerks begin as soon as each is there, or is gone.
func (all *staff) open() time.Time {
	for _, c := range all.clerks {
		_, _ = io.ReadFull(c.out, make([]byte, 1))
	}
	now := time.Now()
	_ = all.door.Close()
	return now
}

// wait waits until all clerks have left. The first with a problem has all
// others fired.
func (all *staff) wait() error {
	defer all.fire()
	defer all.door.Close()
	var left sync.WaitGroup
	var once sync.Once
	var first error
	for _, c := range all.clerks {
		left.Go(func() {
			if err := c.wait(); err != nil {
				once.Do(func() { first = err; all.fire() })
			}
		})
	}
	left.Wait()
	return first
}

// wait returns what the clerk complained of, with the clerk's exit code.
func (c *clerk) wait() error {
	err := c.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return coded{max(exit.ExitCode(), exitFailed), errors.New(strings.TrimSpace(c.problems.String()))}
	}
	return err
}
