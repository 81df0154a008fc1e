// Command dlock runs a command under a distributed lock, and tells who holds one.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})) }

// stdio are the files that dlock and the commands that it starts share.
type stdio struct{ in, out, err *os.File }

// run is dlock as a function: it returns what the process exits with.
func run(args []string, std stdio) int {
	root := newRoot(std)
	root.SetArgs(args)
	return report(std.err, root.Execute())
}

const rootHelp = `Run a command under a lock that other processes and machines respect, and see who has
which lock.

The locks are those of the backend that --backend or the variable DLOCK_URL names, such
as redis://host:6379, etcd://host:2379, zk://host:2181 or postgres://user@host/db; of
several servers host,host,host. Without a URL they are files of this user on this machine.
If a lock makes trouble, begin with dlock show NAME and dlock doctor.`

func newRoot(std stdio) *cobra.Command {
	root := &cobra.Command{
		Use:           "dlock",
		Short:         "Run a command under a lock that other processes and machines respect",
		Long:          rootHelp,
		Args:          noArguments,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError(flagError(c.Use, err)) })
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(newRun(std), newLs(std), newShow(std), newWatch(std), newUnlock(std), newPing(std), newDoctor(std), newDemo(std), newBench(std), newWorker(std))
	root.AddCommand(systemCommands(std)...)
	return root
}

// newHelp is the usual help command, which would repeat its arguments if they name
// no command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noArguments(about, args)
			}
			return about.Help()
		},
	}
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(errors.New("unknown command: see dlock --help"))
	}
	return nil
}

// What dlock exits with if not with the status of its command. The numbers up
// to 78 are those of sysexits.h, the others those of a shell.
const (
	exitFailed      = 1
	exitUsage       = 64
	exitUnavailable = 69
	exitLost        = 74
	exitHeld        = 75
	exitDenied      = 77
	exitConfig      = 78
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128
)

// exits says when dlock exits with what, to users and to exitCode. What is said of
// COMMAND is for dlock run alone.
var exits = []struct {
	code    int
	meaning string
	kinds   []error
}{
	{exitUsage, "wrong usage", []error{dlock.ErrInvalidName, dlock.ErrInvalidTTL}},
	{exitUnavailable, "the backend is not available: it cannot be reached, or refuses for now", []error{dlock.ErrUnavailable}},
	{exitLost, "the lock was lost while COMMAND ran", []error{dlock.ErrLost}},
	{exitHeld, "the lock is held by another; -E changes the code", []error{dlock.ErrHeld}},
	{exitDenied, "the backend denies access", []error{dlock.ErrAuth}},
	{exitConfig, "wrong configuration, such as a malformed URL", []error{dlock.ErrInvalidConfig, dlock.ErrUnsupported, dlock.ErrConflict}},
	{exitCannotRun, "COMMAND cannot be executed", nil},
	{exitNotFound, "COMMAND was not found", nil},
	{exitSignal, "plus n: signal n ended COMMAND, or dlock while it waited", nil},
}

func exitHelp(runs bool) string {
	var b strings.Builder
	if runs {
		b.WriteString("Exit codes, apart from that of COMMAND itself:\n")
	} else {
		b.WriteString("Exit codes:\n")
	}
	for _, e := range exits {
		if !runs && (strings.Contains(e.meaning, "COMMAND") || e.code == exitHeld) {
			continue
		}
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	return b.String()
}

// An exitStatus is an error of which there is nothing to say but the code.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// A coded is an error with a code of its own.
type coded struct {
	code int
	error
}

func (c coded) Unwrap() error { return c.error }

// usageError hides from a URL on: what was mistyped may hold a password.
func usageError(err error) error {
	text, _, found := strings.Cut(err.Error(), "://")
	if found {
		text = text[:strings.LastIndexAny(text, " \"=")+1] + "..."
	}
	return coded{exitUsage, errors.New(text)}
}

// report prints err on one line and returns the code for it.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if status, ok := err.(exitStatus); ok {
		return int(status)
	}
	complain(w, err)
	return exitCode(err)
}

func exitCode(err error) int {
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	kind := err
	var e *dlock.Error
	if errors.As(err, &e) {
		kind = cmp.Or(e.Kind, e.Err)
	}
	for _, e := range exits {
		for _, k := range e.kinds {
			if errors.Is(kind, k) {
				return e.code
			}
		}
	}
	return exitFailed
}
