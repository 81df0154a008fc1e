package dlock

import (
	"context"
	"time"
)

// A Lease is one entry into a lock. Any goroutine may use it. A nil or zero
// Lease is one that has ended.
//
// A lease ends when it is unlocked, when the lock is lost, or when the client
// is closed. The lock is lost when its holder can no longer be sure of it, even if
// nobody has said so. While this process runs, that is before the server gives the
// lock to somebody else; on Postgres up to 15 ms after, if the network has reset the
// connection. A process that was stopped meanwhile may act before it notices: only the
// Token, checked where the work takes effect, protects against that.
type Lease struct {
	of leased
}

// leased is what stands behind a Lease: an entry into one lock, or one into
// all locks of a multi-lock.
type leased interface {
	life() *lifecycle
	reason() *reason        // why it is over, nil while it lasts
	notify(othersWait bool) // closes Done and ends the contexts, if it is over
	check()                 // ends it if by the clock it is over
	token() uint64
	until() time.Time
	wantedChan() <-chan struct{}
	unlock(context.Context) error // called once, by who ended the lease
	skipMinHold()                 // has unlock not wait for the minimum hold
	isShared() bool
}

// endUnlocked ends l for whoever unlocks it. It reports false if it was over.
func endUnlocked(l leased) bool {
	first := l.reason() == nil && l.life().over.CompareAndSwap(nil, unlocked)
	l.notify(false)
	return first
}

// Context returns a child of parent that ends when the lease ends. Its cause
// is then an *Error of kind ErrLost, ErrUnlocked or ErrClosed. Work that must
// not outlive the lock runs under it. Lock with this context, or one made from
// it, enters the lock again. A process that was stopped for longer than the lease
// hears of its end from Err at once, and from the context some milliseconds later.
//
// Every call costs some memory until parent or the lease ends. A nil parent is
// context.Background().
func (l *Lease) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
	}
	ctx, end := context.WithCancelCause(parent)
	if err := l.Err(); err != nil {
		end(err)
		return ctx
	}
	if ctx.Err() == nil {
		l.of.life().bindContext(ctx, end)
	}
	return context.WithValue(ctx, chainKey{}, &chain{lease: l, end: end, own: ctx, parent: parent})
}

// Done returns a channel that is closed when the lease ends. Err says why.
func (l *Lease) Done() <-chan struct{} {
	if l.zero() {
		return closedChan
	}
	l.of.check()
	l.of.reason()
	return l.of.life().doneChan()
}

// Err returns nil while the lease lasts, and then an *Error of kind ErrLost,
// ErrUnlocked or ErrClosed. It asks nobody: it says what this process may
// believe.
func (l *Lease) Err() error {
	if l.zero() {
		return errZeroLease
	}
	l.of.check()
	return l.of.reason().on(l.of.life().lock.name)
}

// Token returns the lock's fencing token. It is greater than that of every
// earlier exclusive hold of the lock and of every earlier phase of readers,
// whoever held it, also across restarts of the server. Keep the greatest token
// seen with what the lock protects, and refuse writes that carry a smaller one. (A
// client that does not know yet that its server has lost its data may still use an old
// hold: its tokens are smaller.) Entering a lock again keeps the token, and so does the
// end of the lease. Token is 0 on the lease of a multi-lock, and on a zero lease, so that such a
// check refuses it.
//
// A token fits a signed 64-bit integer, such as a bigint. Each backend counts in a
// domain of its own: tokens of two backends, or of two quorums, do not compare. To move
// to another one, end all holders, and have the store forget what it has seen, or keep
// with each token the number of the move and compare that first.
func (l *Lease) Token() uint64 {
	if l.zero() {
		return 0
	}
	l.of.check()
	return l.of.token()
}

// TokenOf returns the fencing token of one name of a multi-lock, or of the one
// lock that this is a lease on. It is 0 for any other name.
func (l *Lease) TokenOf(name string) uint64 {
	if l.zero() {
		return 0
	}
	c := l.of.life().lock.client
	return l.on(c, c.opts.Prefix+name).Token()
}

// Until returns when the lease ends if nothing more is heard of the server until
// then. Each renewal moves it on. It is the zero time where the lease lasts for as
// long as its process or connection does, and once the lease is over.
func (l *Lease) Until() time.Time {
	if l.Err() != nil {
		return time.Time{}
	}
	return l.of.until()
}

// Name returns the name of the lock, or those of a multi-lock joined by a space. It is
// empty for a zero lease.
func (l *Lease) Name() string {
	if l.zero() {
		return ""
	}
	return l.of.life().lock.name
}

// Shared reports whether the lease is that of a reader, also by Downgrade.
func (l *Lease) Shared() bool { return !l.zero() && l.of.isShared() }

// Label returns the label under which the server keeps the lock. An entry made under
// another lease has the label of that lease.
func (l *Lease) Label() string {
	if l.zero() {
		return ""
	}
	return l.of.life().lock.label
}

// Wanted returns a channel that is closed when somebody else waits for the
// lock, for holders who can stop early. It is nil where the backend cannot tell: for
// readers on ZooKeeper and Postgres, and with WithMaxHold where only a renewal tells. On
// files, etcd and Postgres a renewal tells, and so it may be on ZooKeeper, and on Redis
// without a subscription. Of a multi-lock it is nil if one of its locks cannot tell.
func (l *Lease) Wanted() <-chan struct{} {
	if l.zero() {
		return nil
	}
	return l.of.wantedChan()
}

// Unlock ends the lease, and gives the lock back if this was the last lease on
// it. The server is told even if ctx is done. How long that may take is bounded by the
// deadline of a live ctx; without one by 3 s, or by the TTL if that is less.
//
// It returns ErrLost if the lock had been lost: the work was not protected to
// the end. It returns ErrUnlocked if the lease has been unlocked before. After
// another error, such as ErrUnavailable, the lease is over all the same, and
// the server is told as soon as it can be, or ends the hold by itself.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.zero() {
		return errZeroLease
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if e, ok := l.of.(*entry); ok && e.handOver() {
		l.of.life().tellEnd(ctx, nil)
		return nil
	}
	l.of.check()
	name := l.of.life().lock.name
	if !endUnlocked(l.of) {
		return l.of.reason().during("unlock", name)
	}
	var failed error
	if err := l.of.unlock(ctx); err != nil {
		failed = newError("unlock", name, err)
	}
	l.of.life().tellEnd(ctx, failed)
	return failed
}

// discard unlocks a lease that no caller has received: its minimum hold has not begun.
func (l *Lease) discard(ctx context.Context) {
	l.of.skipMinHold()
	_ = l.Unlock(ctx)
}

// Downgrade turns an exclusive lease into a shared one, with no moment at
// which a writer could come between. Readers that wait come in; the token
// stays. On a shared lease it does nothing.
//
// It fails with ErrReentry while an exclusive entry made under the lease is open, or if
// the lease is itself an entry made under another, and with ErrUnsupported on a Multi or
// where the backend cannot do it. After these errors, or if ctx was done before the server
// could be asked, the lock is held as before. After another error that is not ErrLost it is
// held, but nobody knows whether exclusively: do not write any more. Lock under the lease
// is then ErrUpgrade. Downgrade may be called again.
func (l *Lease) Downgrade(ctx context.Context) error {
	if l.zero() {
		return errZeroLease
	}
	err := l.Err()
	e, single := l.of.(*entry)
	switch {
	case err != nil:
	case ctx == nil:
		err = errNilContext
	case ctx.Err() != nil:
		return ctxError("downgrade", l.of.life().lock.name, ctx)
	case !single:
		err = errMultiDowngrade
	default:
		err = e.downgrade(ctx)
	}
	if err != nil {
		return newError("downgrade", l.of.life().lock.name, err)
	}
	return nil
}

func (l *Lease) zero() bool { return l == nil || l.of == nil }
