//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

const guardName = "guard"

// A guard is a process that kills its process group, and so the command in it,
// when this process is gone. The kernel kills the command alone, if at all; the
// guard also reaches what the command has started. As leader it also keeps the
// number of the group from being given to another.
type guard struct {
	cmd   *exec.Cmd
	group int
}

// startGuard returns once the guard is up to its task.
func startGuard() (*guard, error) {
	cmd := selfCommand(context.Background(), []string{guardName})
	setOwnGroup(cmd)
	if _, err := cmd.StdinPipe(); err != nil { // closed by the kernel when this process ends
		return nil, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &guard{cmd: cmd, group: cmd.Process.Pid}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("its guard does not start: %w", err)
	}
	return g, nil
}

// signal sends sig to the group. The guard itself heeds SIGKILL alone.
func (g *guard) signal(sig syscall.Signal) { _ = syscall.Kill(-g.group, sig) }

// dismiss ends the guard and spares the rest of its group.
func (g *guard) dismiss() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

func newGuard(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Short:  "Kill this process group at the end of the input",
		Hidden: true,
		Args:   noArguments,
		RunE:   func(*cobra.Command, []string) error { return standGuard(std) },
	}
}

// standGuard does not return if all is well. It is deaf to all that a terminal
// or dlock sends to the group.
func standGuard(std stdio) error {
	if syscall.Getpgrp() != os.Getpid() {
		return usageError(errors.New("a guard is started by dlock run"))
	}
	signal.Ignore(slices.Concat(ending, passedOn, []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU})...)
	if _, err := std.out.Write([]byte{'\n'}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, std.in)
	return syscall.Kill(0, syscall.SIGKILL)
}
