//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// A processGroup holds the command and what it starts. Its leader
// is the guard.
type processGroup struct {
	guard *guard
	tty   *terminal // nil: none
}

func newProcessGroup() (processGroup, error) {
	g, err := startGuard()
	if err != nil {
		return processGroup{}, err
	}
	return processGroup{guard: g, tty: openTerminal()}, nil
}

func (g processGroup) terminate() { g.guard.signal(syscall.SIGTERM) }

func (g processGroup) kill() { g.guard.signal(syscall.SIGKILL) }

// dismiss spares what is left of the group.
func (g processGroup) dismiss() {
	g.tty.close()
	g.guard.dismiss()
}

func (c *child) run(grace time.Duration) error {
	// Where the kernel kills the command with its parent, it does so at the end of the
	// thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signal.Notify(c.signals, syscall.SIGTSTP, syscall.SIGCONT)
	group := c.group.guard.group
	c.group.tty.lend(group)
	defer c.group.tty.takeBack(group)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	dieWithParent(c.cmd.SysProcAttr)
	if err := c.cmd.Start(); err != nil {
		return cannotRun(c.cmd.Args[0], err)
	}
	c.group.guard.cover(c.cmd.Process.Pid)
	go c.watch()
	return c.attend(grace)
}

// watch waits in place of exec.Cmd, which does not tell of a stop.
func (c *child) watch() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		is := changeOf(status)
		c.changes <- is
		if is.stop == 0 {
			return
		}
	}
}

// changeOf reads a status of wait4(2). On macOS and FreeBSD package syscall takes a stop by
// SIGSTOP for the continuation of a process: dlock would take it for the end of the command
// and give the lock away. The bits are the same on all systems.
func changeOf(status syscall.WaitStatus) change {
	const stopped = 0x7f
	if status&0xff == stopped {
		return change{stop: syscall.Signal(status >> 8 & 0xff)}
	}
	return change{status: status}
}

// forward passes a signal on. Those that a terminal would send to a whole
// group go to the whole group.
func (c *child) forward(s syscall.Signal) {
	switch s {
	case syscall.SIGUSR1, syscall.SIGUSR2:
		_ = c.cmd.Process.Signal(s)
	case syscall.SIGCONT:
		c.resume()
	default:
		c.group.guard.signal(s)
	}
}

// passedOn are the signals that run passes on to the command alone.
var passedOn = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}

// setOwnGroup has the command be the first of a process group: what a terminal sends
// does not reach it.
func setOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// systemCommands are those that dlock starts itself by on this system.
func systemCommands(std stdio) []*cobra.Command { return []*cobra.Command{newGuard(std)} }
