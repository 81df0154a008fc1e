package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
)

// newCommand finds the program before anybody waits for a lock.
func newCommand(argv []string, std stdio) (*exec.Cmd, error) {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrDot): // the user's PATH says so
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, coded{exitNotFound, fmt.Errorf("command not found: %s", argv[0])}
	case err != nil:
		return nil, cannotRun(argv[0], err)
	}
	return &exec.Cmd{Path: path, Args: argv, Stdin: std.in, Stdout: std.out, Stderr: std.err}, nil
}

func cannotRun(program string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return coded{exitCannotRun, fmt.Errorf("cannot run %s: %w", program, err)}
}

// A child is the command that runs under the lock, with all that it starts.
type child struct {
	cmd     *exec.Cmd
	group   processGroup // the command and what it has started
	lease   *dlock.Lease
	early   time.Duration // how long before the end of the lease the command is to end
	signals chan os.Signal
	changes chan change // how the command was stopped or ended
}

// A change is what has become of the command.
type change struct {
	stop   syscall.Signal     // that has stopped it; 0: it has ended
	status syscall.WaitStatus // with which it has ended
}

// runUnder runs cmd to its end, or to the loss of the lock. It returns the
// exitStatus of cmd, the error of the lease, or why cmd could not be run. Of grace,
// which cmd has to clean up, the part within comes after the loss.
func runUnder(lease *dlock.Lease, cmd *exec.Cmd, signals chan os.Signal, grace, within time.Duration) error {
	g, err := newProcessGroup()
	if err != nil {
		return cannotRun(cmd.Args[0], err)
	}
	defer g.dismiss()
	c := &child{cmd: cmd, group: g, lease: lease, signals: signals, early: max(grace-within, 0), changes: make(chan change)}
	return c.run(grace)
}

// attend passes signals on until the command or the lease ends.
func (c *child) attend(grace time.Duration) error {
	for {
		left, limited := c.left()
		if limited && left <= 0 {
			c.end(grace)
			return errLate
		}
		var due <-chan time.Time // to look again: a renewal may come meanwhile
		if limited {
			due = time.After(left)
		}
		select {
		case <-due:
		case is := <-c.changes:
			if is.stop == 0 {
				return exitOf(is.status)
			}
			c.stopped(is.stop)
		case s := <-c.signals:
			c.forward(s.(syscall.Signal))
		case <-c.lease.Done():
			c.end(grace)
			return c.lease.Err()
		}
	}
}

var errLate = coded{exitLost, errors.New("the lock was not renewed in time: the command was ended before others could have it")}

// left is how long the command may go on if the lease is not renewed, false if there
// is no such limit.
func (c *child) left() (time.Duration, bool) {
	until := c.lease.Until()
	if c.early == 0 || until.IsZero() {
		return 0, false
	}
	return time.Until(until) - c.early, true
}

// end ends the command and what it has started. Whoever is left has the whole of grace
// to clean up, also if the command itself is gone sooner.
func (c *child) end(grace time.Duration) {
	over := time.After(grace)
	c.group.terminate()
	<-over
	c.group.kill()
	for is := range c.changes {
		if is.stop == 0 {
			return
		}
	}
}

func exitOf(status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return bySignal(status.Signal())
	case status.ExitStatus() != 0:
		return exitStatus(status.ExitStatus())
	}
	return nil
}
