package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/spf13/cobra"
)

const runHelp = `Run COMMAND while holding the lock NAME, and wait for the lock first.

The lock lasts as long as COMMAND itself, which finds DLOCK_NAME and the fencing
token DLOCK_TOKEN in its environment. Put a URL that holds a password in DLOCK_URL:
other users can see the arguments of a process, and COMMAND finds that variable empty.
A dlock that COMMAND starts then asks for a URL of its own, and does not lock files.

Signals go on: INT, TERM, HUP and QUIT to COMMAND and what it has started in its
process group, as from a terminal, USR1 and USR2 to COMMAND alone. If the lock
is lost, the whole group gets SIGTERM, and SIGKILL when --grace is over. Both
happen before a server can give the lock to somebody else: while the server does not
answer, SIGTERM comes that much earlier, which is why --grace is at most half of the
TTL. A server that takes the lock away gives no such warning. If dlock is killed,
the whole group is killed at once. If COMMAND makes a group of its own, as timeout
does, that one is reached too. Any other process that has left the group, as a daemon
does with setsid, is not.

With --min-hold a job that is over at once does not run a second time on a machine
whose clock is a little behind. Redis, etcd and a quorum keep the lock by themselves;
elsewhere dlock stays until the time is over.

On Windows the command gets Ctrl-Break in place of a signal, and all that it has started
ends with dlock.

Without dlock.label in the URL, dlock show tells others this host and process.

A duration is a number of seconds, such as 90, or has a unit, such as 1m30s.

COMMAND inherits all of the environment but the value of DLOCK_URL. dlock ends at most two
seconds after COMMAND, also if the backend does not answer: the lock is then free when its
TTL is over. With --min-hold dlock may stay for longer.

`

// runOptions are the flags of dlock run.
type runOptions struct {
	std     stdio
	backend string
	noWait  bool
	shared  bool
	wait    time.Duration // zero: for ever
	ttl     time.Duration // zero: as the URL says
	minHold time.Duration // zero: none
	grace   time.Duration // check sets it if the flag is not given
	held    int           // exit code if the lock is held
}

func newRun(std stdio) *cobra.Command {
	o := &runOptions{std: std}
	c := &cobra.Command{
		Use:   "run [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp + exitHelp(true),
		Args:  nameAndCommand,
		RunE: func(c *cobra.Command, args []string) error {
			name, argv := split(args)
			return o.run(c, name, argv)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows NAME is the command's
	backendFlag(c, &o.backend, "files of this user")
	f.BoolVarP(&o.noWait, "nonblock", "n", false, "do not wait for the lock")
	f.VarP((*seconds)(&o.wait), "wait", "w", "wait for the lock at most for this `duration`, or not at all if it is 0 (default for ever)")
	f.BoolVarP(&o.shared, "shared", "s", false, "share the lock with others that do so")
	f.VarP((*seconds)(&o.ttl), "ttl", "t", "`duration` for which the lock outlives a holder that is cut off (default 30s)")
	f.Var((*seconds)(&o.minHold), "min-hold", "`duration` for which the lock stays held, also if COMMAND ends sooner")
	f.IntVarP(&o.held, "conflict-exit-code", "E", exitHeld, "exit `code` if the lock is held by another")
	f.Var((*seconds)(&o.grace), "grace", "`duration` that COMMAND has to clean up before others can have the lock (default a twentieth of the TTL, half a second at most)")
	return c
}

func nameAndCommand(c *cobra.Command, args []string) error {
	noName := c.ArgsLenAtDash() == 0 && (len(args) < 2 || args[1] != "--") // or one such as -x
	if noName || len(args) == 0 {
		return usageError(errors.New("want dlock run NAME -- COMMAND"))
	}
	_, argv := split(args)
	switch {
	case len(argv) == 0:
		return usageError(errors.New("want dlock run NAME -- COMMAND"))
	case args[1] != "--" && strings.HasPrefix(args[1], "-"):
		return usageError(errors.New("options come before NAME"))
	}
	return nil
}

// split takes NAME and COMMAND apart, with or without the dash in between.
func split(args []string) (name string, argv []string) {
	argv = args[1:]
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	return args[0], argv
}

// check finds what is wrong with the flags, and fills in what they leave open.
func (o *runOptions) check(c *cobra.Command, url string) error {
	given := c.Flags().Changed
	lease := o.lease(url)
	switch {
	case given("wait") && o.noWait:
		return usageError(errors.New("-n and -w exclude each other"))
	case given("ttl") && o.ttl == 0:
		return usageError(errors.New("--ttl must be positive"))
	case o.held < 0 || o.held > 255:
		return usageError(errors.New("--conflict-exit-code is not from 0 to 255"))
	case o.grace > lease/2:
		return usageError(fmt.Errorf("--grace may be %v at most with this TTL", lease/2))
	}
	o.noWait = o.noWait || given("wait") && o.wait == 0
	if !given("grace") {
		o.grace = backend.Margin(lease) / 2
	}
	return nil
}

// lease is the TTL that the lock will have.
func (o *runOptions) lease(url string) time.Duration {
	if o.ttl > 0 {
		return o.ttl
	}
	u, err := backend.ParseURL(url)
	if err != nil {
		return dlock.DefaultTTL
	}
	if ttl := u.Params.TakeDuration("dlock.ttl", 0); ttl > 0 {
		return ttl
	}
	return dlock.DefaultTTL // of a negative one dlock.Open says what is wrong
}

func (o *runOptions) run(c *cobra.Command, name string, argv []string) error {
	url, err := chosenURL(o.backend)
	if err != nil {
		return err
	}
	if err := o.check(c, url); err != nil {
		return err
	}
	hideSelf()
	cmd, err := newCommand(argv, o.std)
	if err != nil {
		return err
	}
	signals := catch(slices.Concat(ending, passedOn)...)
	client, lease, err := o.obtain(signals, url, name)
	if err != nil {
		return err
	}
	cmd.Env = commandEnv(url, name, lease.Token())
	err = runUnder(lease, cmd, signals, o.grace, backend.Margin(o.lease(url))/2)
	if lost := o.giveBack(client, lease, signals); lost != nil {
		return lost
	}
	return err
}

// giveBack unlocks, and says so if the server does not answer in time. It fails if
// the lock was lost. Where this process has to stay for what remains of --min-hold,
// a signal ends that.
func (o *runOptions) giveBack(client *dlock.Client, lease *dlock.Lease, signals <-chan os.Signal) error {
	wait, stop := untilEnding(signals)
	defer stop()
	defer closeWithin(wait, client, o.minHold+closeTimeout)

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := lease.Unlock(ctx)
	if err == nil || errors.Is(err, dlock.ErrLost) {
		return err
	}
	complain(o.std.err, fmt.Errorf("the lock could not be given back, it ends with its TTL: %w", err))
	return nil
}

// obtain waits for the lock, and until then for a signal to end.
func (o *runOptions) obtain(signals <-chan os.Signal, url, name string) (*dlock.Client, *dlock.Lease, error) {
	ctx, stop := untilEnding(signals)
	defer stop()
	client, err := openClient(ctx, url, dlock.Options{Label: ownLabel()})
	if err != nil {
		return nil, nil, o.explain(ctx, err)
	}
	lease, err := o.lock(ctx, client, name)
	stop()
	if err == nil && ended(ctx) == nil {
		return client, lease, nil
	}
	closeClient(client)
	return nil, nil, o.explain(ctx, err)
}

func (o *runOptions) lock(ctx context.Context, client *dlock.Client, name string) (*dlock.Lease, error) {
	var settings []dlock.Option
	if o.ttl > 0 {
		settings = append(settings, dlock.WithTTL(o.ttl))
	}
	if o.minHold > 0 {
		settings = append(settings, dlock.WithMinHold(o.minHold))
	}
	if o.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.wait, fmt.Errorf("waited for %v", o.wait))
		defer cancel()
	}
	m := client.RWMutex(name, settings...)
	var l dlock.Locker = m
	if o.shared {
		l = m.RLocker()
	}
	if o.noWait {
		return l.TryLock(ctx)
	}
	explaining, stop := context.WithCancel(ctx)
	var explained sync.WaitGroup
	explained.Go(func() { o.explainWait(explaining, client, name) })
	defer explained.Wait()
	defer stop()
	return l.Lock(ctx)
}

// ownLabel tells others this host and process.
func ownLabel() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 64 {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}

// explain is why there is no lock: a signal, if one has come, else err with
// the code that the user chose for a lock that is held.
func (o *runOptions) explain(ctx context.Context, err error) error {
	switch signalled := ended(ctx); {
	case signalled != nil:
		return signalled
	case exitCode(err) != exitHeld:
		return err
	case o.held == 0: // no problem to the user, so nothing to say
		return exitStatus(0)
	}
	return coded{o.held, err}
}

// commandEnv is what the command is told of the lock at url, without credentials. Where
// that is not in files of this user, the variable of the URL is empty: a dlock that the
// command starts would otherwise lock files of this machine, which exclude no other.
func commandEnv(url, name string, token uint64) []string {
	const nameVariable, tokenVariable = "DLOCK_NAME", "DLOCK_TOKEN"
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		variable, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{urlVariable, nameVariable, tokenVariable}, variable)
	})
	if url != defaultURL {
		env = append(env, urlVariable+"=")
	}
	return append(env, nameVariable+"="+name, tokenVariable+"="+strconv.FormatUint(token, 10))
}
