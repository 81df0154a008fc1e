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
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
)

const guardName = "guard"

// A guard is a process that kills its process group, and so the command in it,
// when this process is gone. The kernel kills the command alone, if at all; the
// guard also reaches what the command has started. As leader it also keeps the
// number of the group from being given to another. The command itself may make a group
// of its own, as timeout does: that group has the number of the command.
type guard struct {
	cmd     *exec.Cmd
	input   io.Writer // ends with this process
	group   int
	command int // process number of the command; 0: not started
}

// startGuard returns once the guard is up to its task.
func startGuard() (*guard, error) {
	cmd := selfCommand(context.Background(), []string{guardName})
	setOwnGroup(cmd)
	input, err := cmd.StdinPipe() // closed by the kernel when this process ends
	if err != nil {
		return nil, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &guard{cmd: cmd, input: input, group: cmd.Process.Pid}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("its guard does not start: %w", err)
	}
	return g, nil
}

// cover has the guard also kill the group that the command may make.
func (g *guard) cover(command int) {
	g.command = command
	_, _ = fmt.Fprint(g.input, command)
}

// signal sends sig to the group, and to that of the command if it has one of its own.
// The guard itself heeds SIGKILL alone.
func (g *guard) signal(sig syscall.Signal) {
	_ = syscall.Kill(-g.group, sig)
	if g.command > 0 {
		_ = syscall.Kill(-g.command, sig)
	}
}

// dismiss ends the guard and spares the rest of its group.
func (g *guard) dismiss() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

func newGuard(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Short:  "Kill this process group, and that of the process in the input, at the end of the input",
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
	told, _ := io.ReadAll(std.in)
	if command, err := strconv.Atoi(string(told)); err == nil && command > 0 {
		_ = syscall.Kill(-command, syscall.SIGKILL)
	}
	return syscall.Kill(0, syscall.SIGKILL)
}
