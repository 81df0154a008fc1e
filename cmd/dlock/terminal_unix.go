//go:build unix

package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the controlling one of this process, which the command borrows:
// only one process group may read from it, and the command has its own. A nil
// terminal is none.
type terminal struct{ fd int }

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// ownedBy reports whether group has the terminal.
func (t *terminal) ownedBy(group int) bool {
	if t == nil {
		return false
	}
	owner, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && owner == group
}

// lend gives the terminal to a command that has it for input and output. In a
// pipeline it stays with the others in it until the command asks for it.
func (t *terminal) lend(group int) {
	if term.IsTerminal(unix.Stdin) && term.IsTerminal(unix.Stdout) {
		t.give(group)
	}
}

// give makes group the one that has the terminal if that is ours to decide.
func (t *terminal) give(group int) bool {
	return t.ownedBy(unix.Getpgrp()) && unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

// takeBack undoes give.
func (t *terminal) takeBack(group int) {
	if t.ownedBy(group) {
		signal.Ignore(syscall.SIGTTOU) // else asking from the background stops us
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
	}
}

// stopped answers a stop of the command. One that needs the terminal gets it.
// Otherwise dlock stops too, so that the shell takes over: while it is stopped
// it does not renew the lock. Without a shell the command goes on.
func (c *child) stopped(by syscall.Signal) {
	group := c.group.guard.group
	asks := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	switch {
	case c.group.tty == nil:
	case asks && c.group.tty.give(group):
		c.group.guard.signal(syscall.SIGCONT)
	case unattended():
		c.group.guard.signal(syscall.SIGCONT)
	default:
		c.group.tty.takeBack(group)
		_ = syscall.Kill(0, syscall.SIGSTOP) // the whole job, as the terminal would
	}
}

// unattended reports whether there is no shell that could continue dlock: one
// with job control gives each job a group that is not its own.
func unattended() bool {
	session, err := unix.Getsid(0)
	return err != nil || session == unix.Getpgrp()
}

// resume continues a command that was stopped, unless the lock was lost
// meanwhile: it must not get a chance to act.
func (c *child) resume() {
	if c.lease.Err() != nil {
		return
	}
	c.group.tty.give(c.group.guard.group)
	c.group.guard.signal(syscall.SIGCONT)
}
