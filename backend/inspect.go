package backend

import (
	"context"
	"errors"
	"iter"
	"time"
)

// ErrNotHeld says that there is no hold such as the one that was to be broken.
var ErrNotHeld = errors.New("dlock: no such hold")

// ErrBroken is the cause of ErrLost if the server says that somebody has broken the
// hold: see [Breaker].
var ErrBroken = errors.New("dlock: taken away by Break")

// A Party is one holder of a lock, or one waiter, as the server knows it. What the
// server does not know is zero.
type Party struct {
	Label   string        // what the party says of itself
	Client  string        // which client it is: [ID.Client], or what stands for it on the server
	Mode    Mode          // how it holds the lock, or wants to
	Entries int           // how often it has entered the lock, at least 1 for a holder
	Since   time.Time     // when it was granted or joined the queue, by the server's clock
	Left    time.Duration // how long the server keeps the hold if it hears nothing more of it
	Token   uint64        // the fencing token of a holder
}

// A Snapshot is what the server says of one lock at one moment.
type Snapshot struct {
	Holders []Party // empty if the lock is free
	Waiters []Party // in the order in which they will be served
}

// An Inspector is a Backend whose server can tell who holds a lock. Its methods only
// read: they create, refresh and free nothing, and work for a client that may only
// read. They never return or log what allows a hold to be released. A long answer is read in
// parts, with Rest between them: no other client is to wait for it.
type Inspector interface {
	// Inspect says who holds the lock of that name and who waits for it. A name that
	// nobody holds or waits for is an empty Snapshot. It includes those of this client.
	// Parties whose time is over are left out.
	Inspect(ctx context.Context, name string) (Snapshot, error)

	// Names yields each name that begins with prefix and is held or waited for, in any
	// order. A name that becomes free or taken meanwhile may be missed, and one may
	// be yielded twice. It never has all names in memory. An error ends the sequence.
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// A Breaker is a Backend whose server can take a hold away from a holder that is alive.
type Breaker interface {
	// Break ends the exclusive hold of that name if its token is still token, or is one
	// that goroutines of its client may have passed it on with, or all shared holds that
	// were granted under it. The next in line gets the lock at
	// once, under a greater token. A holder hears of it by its next renewal at the
	// latest, as ErrLost because of ErrBroken. Break reports ErrNotHeld if there is no such hold.
	Break(ctx context.Context, name string, token uint64) error
}

// A Pinger is a Backend that can ask its server for a sign of life.
type Pinger interface {
	// Ping asks the server for its version with one request. Any healthy answer is
	// a nil error; the version may be empty. Where a server can keep requests for locks
	// waiting and answer others, it keeps Ping waiting, too: who waits with a quorum goes by that.
	Ping(ctx context.Context) (version string, err error)
}
