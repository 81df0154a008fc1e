package dlock

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Snapshot is what the server says of one lock at one moment: its Holders, and its
// Waiters in the order in which they will be served.
type Snapshot = backend.Snapshot

// A Party is one holder of a lock, or one waiter. What the server does not know is zero.
type Party = backend.Party

// A Finding is one result of [Client.Examine], good or bad.
type Finding = backend.Finding

// An Info says where the locks of a client are.
type Info struct {
	Backend string // the scheme of the URL, such as redis; empty if the client is from New
	Address string // the URL without user, password and parameters; empty likewise
	Version string // the server's version, if the last Ping told it
}

// Info describes the client. It asks no server.
func (c *Client) Info() Info {
	if c == nil || c.backend == nil {
		return Info{}
	}
	info := c.info
	if version := c.version.Load(); version != nil {
		info.Version = *version
	}
	return info
}

// Ping asks the server for a sign of life. It returns nil if the server is healthy, and
// ErrUnavailable if it does not answer within 3 s.
func (c *Client) Ping(ctx context.Context) error {
	return c.ask(ctx, "ping", "", func(ctx context.Context) error {
		pinger, ok := c.backend.(backend.Pinger)
		if !ok {
			return ErrUnsupported
		}
		version, err := pinger.Ping(ctx)
		if err == nil {
			c.version.Store(&version)
		}
		return err
	})
}

// Examine looks at the server for what would hurt locks, such as a setting that lets it
// forget them, and calls report for each thing that it has looked at, one call at a time.
// It takes some seconds at most. ErrUnsupported says that the backend cannot be examined;
// any other error says that the server could not be examined to the end. A nil report is
// ErrInvalidConfig.
func (c *Client) Examine(ctx context.Context, report func(Finding)) error {
	if err := c.checkAsk(ctx, "examine", ""); err != nil {
		return err
	}
	if report == nil {
		return newError("examine", "", errNilFunc)
	}
	examiner, ok := c.backend.(backend.Examiner)
	if !ok {
		return newError("examine", "", ErrUnsupported)
	}
	ctx, cancel := backend.Bound(ctx, examineTimeout)
	defer cancel()
	if err := examiner.Examine(ctx, report); err != nil {
		return newError("examine", "", err)
	}
	return nil
}

// examineTimeout is how long a server may take to be examined.
const examineTimeout = 10 * time.Second

// Inspect asks the server who holds the lock of that name and who waits for it, in any
// client. A lock that nobody holds or waits for is an empty Snapshot. Goroutines of one
// client that wait are one waiter at most, and none while their client holds the lock: the
// server does not know of the others. Readers side by side are one waiter each, also while
// their client reads, if a writer waits. Readers of one client are one holder. Inspect only
// reads. Its answer may be old by the time that it comes: do not decide by it whether a
// lock may be used. With thousands of waiters it takes seconds, so that the server has time
// for others, and who leaves and comes back meanwhile may be shown twice. It is
// ErrUnavailable if no part of the answer comes within 3 s.
func (c *Client) Inspect(ctx context.Context, name string) (Snapshot, error) {
	var s Snapshot
	err := c.askAbout(ctx, "inspect", name, func(ctx context.Context, fullName string) (err error) {
		inspector, ok := c.backend.(backend.Inspector)
		if !ok {
			return ErrUnsupported
		}
		s, err = inspector.Inspect(ctx, fullName)
		return err
	})
	if err != nil {
		return Snapshot{}, err
	}
	return s, nil
}

// Names yields the name of every lock that begins with prefix and is held or waited
// for, in any order, without the client's own prefix. It asks the server for some names
// at a time, until ctx is done. A name that becomes free or taken meanwhile may be
// missed, and a name may come twice. An error, with an empty name, ends the sequence: it is
// ErrUnavailable if no part of the answer comes within 3 s.
func (c *Client) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := c.checkAsk(ctx, "names", prefix); err != nil {
			yield("", err)
			return
		}
		inspector, ok := c.backend.(backend.Inspector)
		if !ok {
			yield("", newError("names", prefix, ErrUnsupported))
			return
		}
		bounded := limitFirstAnswer(ctx, backend.FirstAnswer)
		defer bounded.stop()
		for fullName, err := range inspector.Names(backend.WithProgress(bounded, bounded.restart), c.opts.Prefix+prefix) {
			bounded.clearLimit() // the caller may take its time with each
			if err != nil {
				yield("", newError("names", prefix, err))
				return
			}
			name, ours := strings.CutPrefix(fullName, c.opts.Prefix)
			if ours && name != "" && !yield(name, nil) {
				return
			}
			bounded.renewLimit()
		}
	}
}

// Break takes the lock away from its holder, if the token of the hold is still token,
// and from all readers that hold it under that token. The next waiter gets the lock at
// once, with a greater token. The holder's lease ends with ErrLost and ErrBroken at its next renewal
// at the latest, but until it hears of that it goes on working: break a lock only if
// its holder is known to be stuck, or if what the lock protects checks tokens.
//
// Redis, etcd and ZooKeeper do not know to which goroutine of a client a hold has been passed
// on: there Break takes every token that those may have got for the hold.
//
// Break reports ErrNotHeld if there is no such hold. On files and Postgres, where a lock lasts
// as long as its process or connection, it reports ErrUnsupported. After ErrUnavailable the lock may
// or may not have been taken away; on a quorum another Break may then say ErrNotHeld although
// the hold goes on at servers that did not answer.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	return c.askAbout(ctx, "break", name, func(ctx context.Context, fullName string) error {
		breaker, ok := c.backend.(backend.Breaker)
		if !ok {
			return ErrUnsupported
		}
		return breaker.Break(ctx, fullName, token)
	})
}

// askAbout is ask about the lock of one name.
func (c *Client) askAbout(ctx context.Context, op, name string, f func(ctx context.Context, fullName string) error) error {
	return c.ask(ctx, op, name, func(ctx context.Context) error {
		fullName := c.opts.Prefix + name
		if err := checkName(name, fullName); err != nil {
			return err
		}
		return f(ctx, fullName)
	})
}

// ask calls f with a context that also ends when the server has not answered for as
// long as Lock would wait for its first answer. A part of an answer counts as one.
func (c *Client) ask(ctx context.Context, op, name string, f func(context.Context) error) error {
	if err := c.checkAsk(ctx, op, name); err != nil {
		return err
	}
	bounded := limitFirstAnswer(ctx, backend.FirstAnswer)
	defer bounded.stop()
	if err := f(backend.WithProgress(bounded, bounded.restart)); err != nil {
		return newError(op, name, err)
	}
	return nil
}

// checkAsk reports why the server cannot be asked.
func (c *Client) checkAsk(ctx context.Context, op, name string) error {
	switch {
	case c == nil || c.backend == nil:
		return newError(op, name, backend.Fail(ErrInvalidConfig, errZeroClient))
	case ctx == nil:
		return newError(op, name, errNilContext)
	case ctx.Err() != nil:
		return ctxError(op, name, ctx)
	case c.isClosed():
		return newError(op, name, ErrClosed)
	}
	return nil
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}
