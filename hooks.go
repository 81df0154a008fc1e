package dlock

import (
	"context"
	"reflect"
	"time"
)

// Hooks are functions that a client calls when something happens to one of its
// locks, for metrics and traces. Each may be nil, and then costs nothing. JoinHooks
// makes one set of several.
//
// Two rules let a program keep gauges. Each call of Lock, TryLock, RLock or TryRLock
// that begins with Acquiring ends with one Acquired or one NotAcquired. Each lease
// that begins with Acquired ends with one Released, Lost or Closed; a lease that
// nobody unlocks ends with Client.Close at the latest. A Multi is one call and one
// lease, under all its names joined by a space.
//
// Hooks are called without any lock of the client held. They must be safe for
// concurrent use and should return quickly: Renewed and RenewalFailed hold up the
// renewal of other locks, which are lost if that takes long, and Lost the report of others.
// While a hook of a call has not returned, the call keeps what it has: the lock, or in Waiting
// the next place in its client, so that those behind it wait.
//
// A hook may call the client. But Client.Close, and Unlock and Downgrade in Renewed and
// RenewalFailed, wait for the hook to return: a hook calls them in another goroutine and
// does not wait for that.
//
// A hook that panics leaves the lock as if the call had failed: a call whose
// Acquiring, Waiting or Acquired panics does not keep the lock. After Acquiring, no
// further hook is called for that call. The panic goes on in the call for which the
// hook was called. In a goroutine of the client's, as Lost, Renewed and RenewalFailed are
// mostly called, it ends the program.
//
// A hook that ends its goroutine, by runtime.Goexit or FailNow of a test, ends the call in the
// same way. In a goroutine of the client's Lost and Closed end nothing but themselves. Renewed
// and RenewalFailed must not do that: the renewal of other locks ends with them.
type Hooks struct {
	// Acquiring is called first in each call that asks for a lock, in the
	// goroutine of the caller. It returns ctx or a child of it, which the rest of
	// the call uses, the backend included: a span goes in there. Nil stands for ctx.
	Acquiring func(ctx context.Context, e AcquiringEvent) context.Context

	// Waiting is called once in a call that does not get the lock at once and waits
	// for it. It is called in the goroutine of the caller, or in another, in which case the
	// call may have ended when Waiting returns.
	Waiting func(ctx context.Context, e WaitingEvent)

	// Acquired is called when a call has got the lock, in the goroutine of the
	// caller and before it returns.
	Acquired func(ctx context.Context, e AcquiredEvent)

	// NotAcquired is called when a call has not got the lock, in the goroutine of
	// the caller and before it returns.
	NotAcquired func(ctx context.Context, e NotAcquiredEvent)

	// Renewed is called when the server has prolonged a hold, in a goroutine of the
	// client's. Several leases can share a hold.
	Renewed func(e RenewedEvent)

	// RenewalFailed is called when an attempt to prolong a hold had no success but
	// the hold is not lost yet, in a goroutine of the client's. The client tries
	// again.
	RenewalFailed func(e RenewalFailedEvent)

	// Released is called when a lease was unlocked, in the goroutine of the caller
	// of Unlock. The server has been asked by then if this was the last lease of
	// its hold. With WithMinHold the server may keep the lock for longer, and a lease
	// that was handed over locally may end after the Acquired of the next.
	Released func(ctx context.Context, e ReleasedEvent)

	// Lost is called when a lease was lost, or when Unlock or Client.Close finds out
	// that it had been. The lease's contexts have ended by then. It is called in a
	// goroutine of the client's, in that of Unlock, or in that of Lock if the loss came
	// so early. It is called for one after the other of the leases that are lost together.
	Lost func(e LostEvent)

	// Closed is called when Client.Close has ended a lease, in a goroutine of
	// Close. ctx has the values of the one given to Close. If Close comes beside Lock or Unlock,
	// Closed may be called in the goroutine of that, with its ctx.
	Closed func(ctx context.Context, e ClosedEvent)
}

// tellsOfCalls reports whether there is a hook that is told of calls or of leases: any but
// those of renewals.
func (h Hooks) tellsOfCalls() bool {
	h.Renewed, h.RenewalFailed = nil, nil
	hooks := reflect.ValueOf(h)
	for i := range hooks.NumField() {
		if !hooks.Field(i).IsNil() {
			return true
		}
	}
	return false
}

// An AcquiringEvent says which lock a call asks for.
type AcquiringEvent struct {
	Op     string // lock, trylock, rlock or tryrlock
	Name   string // the lock's, without the client's prefix; a multi-lock's names joined by a space
	Shared bool   // for a reader
}

// A WaitingEvent says for which lock a call waits.
type WaitingEvent struct {
	Op     string // as in AcquiringEvent
	Name   string
	Lock   string // the lock that it waits for: Name, or one of a multi-lock's names
	Shared bool
}

// An AcquiredEvent says how a call got its lease.
type AcquiredEvent struct {
	Op       string // as in AcquiringEvent
	Name     string
	Shared   bool
	Lease    uint64        // number of the lease, unique in the process; from 1
	Token    uint64        // the fencing token; 0 for a multi-lock
	Nested   bool          // a re-entry; of a multi-lock, if each of its locks is one
	Queued   bool          // the call had to wait: Waiting was called for it, if it is not nil
	HandOver HandOver      // from whom the hold came; of a multi-lock, remote if one of its locks came so, else local if one did
	Waited   time.Duration // from the call to the lease
	Place    string        // where the lock is: two clients say the same only if Open had one address for both
	FullName string        // with the client's prefix; together with Place it tells one lock from others. Empty for a multi-lock
}

// A HandOver says from whom a lease was handed over.
type HandOver string

const (
	// NoHandOver: the lock was free, or the lease shares a hold of this client.
	NoHandOver HandOver = ""

	// LocalHandOver: another goroutine of this client has passed its hold on,
	// without a request to the server.
	LocalHandOver HandOver = "local"

	// RemoteHandOver: the call waited in the server's queue.
	RemoteHandOver HandOver = "remote"
)

// A NotAcquiredEvent says why a call did not get a lease.
type NotAcquiredEvent struct {
	Op      string // as in AcquiringEvent
	Name    string
	Shared  bool
	Queued  bool          // the call had to wait: Waiting was called for it, if it is not nil
	Waited  time.Duration // from the call to its end
	Outcome Outcome
	Err     error // what the call returns, an *Error
}

// An Outcome is what became of a call that has not got the lock.
type Outcome string

const (
	// OutcomeHeld: somebody else holds the lock, and the call did not wait or waited
	// until its deadline.
	OutcomeHeld Outcome = "held"

	// OutcomeCanceled: the caller's context was canceled, or was done before
	// anything was asked.
	OutcomeCanceled Outcome = "canceled"

	// OutcomeFailed: all else, such as a server that does not answer.
	OutcomeFailed Outcome = "failed"
)

// A RenewedEvent is about a hold that was prolonged. When all is well, half of TTL or more
// is left: two thirds less the margin that its holder does not count on, or more if the hold
// was renewed together with others. Left and TTL are 0 where there is no lease, as on files.
type RenewedEvent struct {
	Name   string // of one lock, also if the hold is part of a multi-lock
	Shared bool   // the hold is a reader's by now
	Token  uint64
	Left   time.Duration // what was left of the lease before: the measure to watch, as it falls before locks are lost
	TTL    time.Duration // the length of that lease, as the server granted it, whatever was asked for
}

// A RenewalFailedEvent is about a hold that was not prolonged.
type RenewalFailedEvent struct {
	Name   string // as in RenewedEvent
	Shared bool
	Token  uint64
	Left   time.Duration // what is left of the lease: the hold is lost then, or before by WithMaxHold
	TTL    time.Duration // as in RenewedEvent
	Err    error
}

// A ReleasedEvent is about a lease that was unlocked.
type ReleasedEvent struct {
	Name   string
	Shared bool          // acquired as a reader, whatever Downgrade has done since
	Lease  uint64        // as in AcquiredEvent
	Token  uint64        // as in AcquiredEvent
	Nested bool          // as in AcquiredEvent
	Age    time.Duration // from Acquired to now
	Err    error         // the server has not confirmed the release; it frees the lock by itself
}

// A LostEvent is about a lease that was lost.
type LostEvent struct {
	Name   string
	Shared bool
	Lease  uint64
	Token  uint64
	Nested bool
	Age    time.Duration
	Cause  LossCause
	Err    error // an ErrLost with its cause
}

// A LossCause is why a lease was lost.
type LossCause string

const (
	// LossExpired: the lease was not renewed in time.
	LossExpired LossCause = "expired"

	// LossMaxHold: the lock was held for as long as WithMaxHold allows.
	LossMaxHold LossCause = "max_hold"

	// LossBroken: somebody has taken the lock away with Client.Break.
	LossBroken LossCause = "broken"

	// LossTaken: the server says that the hold is gone, for another reason or for
	// one that it does not tell.
	LossTaken LossCause = "taken"
)

// A ClosedEvent is about a lease that Client.Close has ended.
type ClosedEvent struct {
	Name   string
	Shared bool
	Lease  uint64
	Token  uint64
	Nested bool
	Age    time.Duration
	Err    error // the server has not confirmed the release, or nil
}

// JoinHooks returns hooks that call those of all, one after the other. Each set sees a
// beginning and an end of what it is told of, also if a hook of another set panics.
func JoinHooks(all ...Hooks) Hooks {
	var joined Hooks
	for _, h := range all {
		joined.Acquiring = joinAcquiring(joined.Acquiring, joined.NotAcquired, h.Acquiring)
		joined.Waiting = joinCtxHook(joined.Waiting, h.Waiting)
		joined.Acquired = joinCtxHook(joined.Acquired, h.Acquired)
		joined.NotAcquired = joinCtxHook(joined.NotAcquired, h.NotAcquired)
		joined.Renewed = joinHook(joined.Renewed, h.Renewed)
		joined.RenewalFailed = joinHook(joined.RenewalFailed, h.RenewalFailed)
		joined.Released = joinCtxHook(joined.Released, h.Released)
		joined.Lost = joinHook(joined.Lost, h.Lost)
		joined.Closed = joinCtxHook(joined.Closed, h.Closed)
	}
	return joined
}

// joinAcquiring calls f and then g. If g panics, the call has begun for f alone and ends
// with notAcquired.
func joinAcquiring(
	f func(context.Context, AcquiringEvent) context.Context,
	notAcquired func(context.Context, NotAcquiredEvent),
	g func(context.Context, AcquiringEvent) context.Context,
) func(context.Context, AcquiringEvent) context.Context {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, e AcquiringEvent) context.Context {
		if with := f(ctx, e); with != nil {
			ctx = with
		}
		returned := false
		defer func() {
			if !returned && notAcquired != nil {
				err := &Error{Op: e.Op, Name: e.Name, Err: errHookPanicked}
				notAcquired(ctx, NotAcquiredEvent{Op: e.Op, Name: e.Name, Shared: e.Shared, Outcome: OutcomeFailed, Err: err})
			}
		}()
		if with := g(ctx, e); with != nil {
			ctx = with
		}
		returned = true
		return ctx
	}
}

func joinCtxHook[E any](f, g func(context.Context, E)) func(context.Context, E) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, e E) {
		defer g(ctx, e)
		f(ctx, e)
	}
}

func joinHook[E any](f, g func(E)) func(E) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(e E) {
		defer g(e)
		f(e)
	}
}
