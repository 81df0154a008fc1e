// Package backend defines what a lock backend implements, and the tools that
// every backend needs. Application code should use package dlock.
//
// A backend keeps locks on one server, cluster or machine. Package dlock puts
// everything portable on top of it: the local queue, re-entry, renewal, loss,
// leases and errors. What is left for a backend is to ask the server for a
// hold, to give it back, and to say truthfully what became of it.
//
// To add a backend:
//
//  1. Implement [Backend]. Wait for a lock as the server does it natively;
//     [Poll] is for servers that cannot call back.
//  2. Implement those of the optional interfaces [Renewer], [Reenterer],
//     [Downgrader], [Transferer], [BatchReleaser], [Expirer], [MinTTLer],
//     [TokenRegister], [Inspector], [Breaker], [Pinger] and [Examiner] that fit.
//     They are found by type assertion.
//  3. [Register] a URL scheme in an init function that does nothing else, and
//     export a New for people who already have a client of the server.
//  4. Run the conformance suite against it.
//
// The interfaces are not covered by semantic versioning before version 1.
package backend

import (
	"context"
	"time"
)

// Mode says how a lock is held.
type Mode uint8

const (
	Exclusive Mode = iota + 1 // one holder, alone
	Shared                    // any number of holders, none of them exclusive
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "invalid"
}

// A Request asks for one hold.
type Request struct {
	// Name is the lock's name: 1 to 1024 bytes of any value. A backend maps
	// it to a key of its own so that no two names share one; see [EncodeName].
	Name string

	// ID is unique to this request, in every process and for ever. A backend
	// stores it with the hold, so that a repeated or late message about one
	// hold can never touch another. Knowing it allows the hold to be released:
	// it belongs in no log.
	ID ID

	// Label says for people who asks, in 256 bytes at most. It may be empty and is
	// never compared.
	Label string

	// Mode is Exclusive or Shared.
	Mode Mode

	// TTL is how long the server keeps the hold once it hears nothing more
	// of it. A backend whose server counts in coarser units rounds up. It is
	// never less than the backend's MinTTL.
	TTL time.Duration

	// Fixed says that the hold ends TTL after it was granted, however long it
	// was waited for. It is not renewed unless the server has granted less than
	// that.
	Fixed bool

	// Wait says whether to wait for a lock that is held. Without it a held
	// lock is ErrHeld at once, the request leaves nothing behind on the
	// server, and it does not overtake those who wait.
	Wait bool

	// Observer hears what the server says of the hold unasked. It is never
	// nil in a request from package dlock.
	Observer Observer
}

// Queued tells the Observer, if there is one, that the request has to wait.
func (r *Request) Queued() {
	if r.Observer != nil {
		r.Observer.Queued()
	}
}

// Lost tells the Observer, if there is one, that the hold is over.
func (r *Request) Lost(cause error) {
	if o := r.Observer; o != nil {
		o.Lost(cause)
	}
}

// Wanted tells the Observer, if there is one, that somebody else waits.
func (r *Request) Wanted() {
	if o := r.Observer; o != nil {
		o.Wanted()
	}
}

// Answered tells the Observer, if it wants to know, that the server has answered
// without a word on who holds the lock: it does not grant yet. The request then
// waits for longer than FirstAnswer, as one that is queued does.
func (r *Request) Answered() {
	if o, ok := r.Observer.(interface{ Answered() }); ok {
		o.Answered()
	}
}

// Shortened tells the Observer, if it wants to know, that the hold ends before what it was told
// last, unless it is renewed: what the server still has of it was proven at sent and lasts for
// granted from then on, as Sent and Granted of a Hold say. A renewal that is reported afterwards
// counts in its place. The Observer calls nothing of the backend meanwhile.
func (r *Request) Shortened(sent time.Time, granted time.Duration) {
	if o, ok := r.Observer.(interface {
		Shortened(sent time.Time, granted time.Duration)
	}); ok {
		o.Shortened(sent, granted)
	}
}

// An Observer is told of events of one request and its hold. Its methods return
// at once, may be called from any goroutine, more than once, and even before
// Acquire has returned.
type Observer interface {
	// Queued says that the lock is not free, so that the request waits. It is called
	// as soon as the server has said so, and with no mutex held that Transfer takes:
	// a request that is neither granted nor Queued within FirstAnswer is ended.
	Queued()

	// Lost says that the hold is over, on the server's own word. A hold that
	// was released is never reported lost.
	Lost(cause error)

	// Wanted says that somebody else waits for the lock.
	Wanted()
}

// A Hold is a lock as the server granted it.
type Hold struct {
	// Request is what was asked for. Mode follows a downgrade.
	Request

	// Token is the fencing token. It is greater than the token of every
	// earlier exclusive hold and every earlier phase of readers of the name,
	// also across a restart of the server. Readers of one phase share theirs,
	// where that costs the server no further question: a reader's token is
	// compared with those of writers only.
	Token uint64

	// Sent is when the request was sent that last proved the hold: before it
	// left, never when its answer came. The caller stops believing in the
	// hold before Sent + Granted. Of a hold that was waited for it is no later
	// than the server's grant: the backend takes the grant's age from the
	// server, or the moment before it asked whether it stands, or what has
	// proved its session last. A grant that is as old as its TTL when it is
	// heard of is none: the backend gives it back and waits again.
	Sent time.Time

	// Granted is how long the server keeps the hold from Sent on. Zero means
	// for as long as the holder's process or connection lives.
	Granted time.Duration

	// RenewIn is when the first renewal is due, counted from Sent. Zero
	// means after a third of Granted, or of TTL where Granted is zero.
	RenewIn time.Duration

	// TellsWanted says that the backend reports waiters of other clients to
	// the Observer, sooner or later. Where a renewal tells, it is false for a
	// hold that is Fixed: that is never renewed.
	TellsWanted bool

	// WantedAtOnce says that such a report comes as soon as somebody waits, not
	// with the next renewal. Without it package dlock bounds how long a hold
	// passes from goroutine to goroutine of one client, as if somebody waited.
	WantedAtOnce bool

	// Index is the hold's place in a call of Renew or ReleaseAll, for its caller. The
	// backend leaves it alone.
	Index int32

	// State is the backend's own. Nobody else looks at it.
	State any
}

// A Backend keeps locks on one server, cluster or machine. Its methods may be
// called concurrently. Package dlock never has two exclusive requests, or an
// exclusive and a shared one, for the same name under way at once: it queues
// the goroutines of a client by itself, and asks for the one whose turn it is.
type Backend interface {
	// Acquire takes the lock that r names, and waits for it if r.Wait.
	// Waiting is first come, first served. A waiter whose process has died is in
	// nobody's way for longer than its TTL.
	//
	// ctx bounds the call, not the hold. If Acquire returns an error, then
	// r.ID holds nothing and waits for nothing, or will shortly, whatever
	// the server had done when ctx ended: a request that may have left
	// something in a queue is never abandoned. A [Janitor] finishes it, at once
	// if the server answers: nobody waits behind an entry until it runs out.
	//
	// The error is ErrHeld only if the server said so: the lock was held, or
	// r was still queued when ctx ended. It is ErrUnavailable if the server
	// did not answer. [WaitEnded] tells the two apart. A request that waits
	// survives a server that goes away and comes back; one that has never
	// had an answer does not try for ever.
	Acquire(ctx context.Context, r Request) (*Hold, error)

	// Release ends h. It may be called again, at any time later, also after
	// Renew has reported ErrLost, and never ends another hold. It reports ErrLost
	// if h was over before; after an error of another kind the outcome is
	// unknown, and the caller repeats the call. The repeat may report ErrLost, or
	// nothing, if the first call has ended h after all.
	//
	// Release returns within h.TTL whatever the server does: see [Bound].
	// Once it has returned, even with an error, h does not stand in the way
	// of a later Acquire of this client any more than a stranger's hold.
	Release(ctx context.Context, h *Hold) error

	// Close releases every hold, ends every waiting Acquire with ErrClosed,
	// and leaves nothing behind: no goroutine, connection, key or watch. A
	// client that was given to the backend stays open. Close may be called
	// twice. ctx bounds what the server has to be told, not the clean-up of what is local.
	Close(ctx context.Context) error
}

// A Renewer is a Backend whose holds must be kept alive, or can be checked.
// Package dlock calls it for every hold that does not end by itself before its
// lease, at a third of the lease and again within it after a failure.
type Renewer interface {
	// Renew keeps each hold for its TTL from now, which is the same for all
	// holds of one call. It calls report once for every hold, as soon as its
	// fate is known, from any goroutine, and returns when it has reported them
	// all.
	//
	// For a hold that lives on, Renew first sets Sent and Granted to what
	// was proven, then reports nil. It reports ErrLost for a hold that is
	// gone, and never re-creates one. Any other error leaves the hold as it
	// is, and the caller tries again while the lease lasts.
	Renew(ctx context.Context, holds []*Hold, report func(h *Hold, err error))
}

// A Reenterer is a Backend whose server keeps the number of entries of a
// re-entrant hold. Without it package dlock counts alone.
type Reenterer interface {
	// Reenter proves that h still stands, refreshes it, and records that it
	// has been entered entries times. seq grows with every change of the
	// count: the server ignores a message with a lower one than it has seen,
	// so that a repeated or overtaken call does no harm. It reports ErrLost
	// if h is gone, and returns within h.TTL whatever the server does.
	Reenter(ctx context.Context, h *Hold, entries int, seq int64) error
}

// A Downgrader is a Backend that can turn an exclusive hold into a shared one.
type Downgrader interface {
	// Downgrade makes h shared with no moment in between at which another
	// could hold the lock exclusively, and lets in the readers that wait
	// next in line. The token stays. It may be repeated, and reports ErrLost
	// if h is gone, and ErrUnsupported only if it has asked nobody. The caller sets
	// h.Mode, and neither renews h nor releases it meanwhile.
	Downgrade(ctx context.Context, h *Hold) error
}

// A Transferer is a Backend whose exclusive holds can pass from one goroutine
// of a client to the next with no request to the server.
type Transferer interface {
	// Transfer returns the fencing token under which h goes on for another
	// owner. It is greater than every token of the name so far, and smaller
	// than any that the server will give out later, whatever becomes of h.
	// Transfer reports false if there is no such token: h is then released.
	// It asks no server and reads no file, as it is called with the client's mutex
	// held: all locks of the client wait for it. It may be called while h is renewed,
	// but not once h was to be downgraded, whatever has become of that.
	// The caller sets h.Token, and calls Transfer once at a time for a hold.
	Transfer(h *Hold) (token uint64, ok bool)
}

// A BatchReleaser is a Backend that gives back many holds with few requests.
// Package dlock uses it where many holds end together: Close, the end of a
// multi-lock, and the loss of many.
type BatchReleaser interface {
	// ReleaseAll is Release for each of holds. It calls report once for every
	// hold, as soon as its fate is known, from any goroutine, and returns when it
	// has reported them all. The holds may differ in TTL and mode; ReleaseAll
	// returns within the greatest TTL among them, and soon after ctx is done.
	ReleaseAll(ctx context.Context, holds []*Hold, report func(h *Hold, err error))
}

// An Expirer is a Backend whose server ends a hold at a given time by itself,
// without the holder's process. WithMinHold needs it to outlive a process. One that
// can do so for some times only says by a method CanExpire(d time.Duration) bool for
// which.
type Expirer interface {
	// Expire has h end by itself d from now, rounded up to what the server counts
	// in, and gives it up: nobody renews or releases it afterwards, and Lost is not
	// reported. The server then grants the lock to the next in line. Expire reports
	// ErrLost if h was over before, and returns within h.TTL whatever the server
	// does.
	Expire(ctx context.Context, h *Hold, d time.Duration) error
}

// CanExpire reports whether b is an Expirer that can have a hold end by itself d from now.
func CanExpire(b Backend, d time.Duration) bool {
	_, expires := b.(Expirer)
	some, limited := b.(interface{ CanExpire(time.Duration) bool })
	return expires && (!limited || some.CanExpire(d))
}

// A MinTTLer is a Backend with a lower bound for the TTL above [MinTTL].
type MinTTLer interface {
	// MinTTL returns the least TTL of a lock. It asks no server.
	MinTTL() time.Duration
}

// The bounds of a TTL on every backend.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// FirstAnswer is how long a request waits for a server that has never answered
// it: an Acquire that has had no answer for so long is ErrUnavailable, and so is
// a New or Open. A request that has had an answer once waits for as long as its ctx
// allows, through any outage.
const FirstAnswer = 3 * time.Second

// MaxName is the greatest length of a name in bytes.
const MaxName = 1024

// Margin is the part of a lease that its holder does not count on: a tenth,
// within 5 ms and 1 s. It covers the drift of two clocks, rounding on the
// wire, and the time it takes to be scheduled.
func Margin(granted time.Duration) time.Duration {
	return min(max(granted/10, 5*time.Millisecond), time.Second)
}
