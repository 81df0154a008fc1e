package dlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/renewal"
)

// A Locker is one named lock. It is safe for concurrent use: goroutines that
// call Lock on the same Locker exclude one another, as on a sync.Mutex.
type Locker interface {
	// Lock waits until the lock is held or ctx is done. ctx bounds the wait
	// only: it has no say once Lock has returned. A call that fails may return up
	// to 100 ms after ctx is done, on a quorum 300 ms: it first gives back what it may
	// have got, so that the next caller is not refused. A call that has had no answer for
	// 3 s is ErrUnavailable, whatever ctx allows; one that the server has queued waits
	// through an outage. A lock that the server takes away before Lock has returned is
	// ErrLost.
	//
	// If ctx came from Lease.Context of a live lease on this lock, Lock
	// enters it again. The lock is free when every lease on it is unlocked.
	Lock(ctx context.Context) (*Lease, error)

	// TryLock is Lock, but reports ErrHeld rather than wait for the lock. It waits
	// for the server's answer, its own or one to a call of this client before it.
	TryLock(ctx context.Context) (*Lease, error)
}

// An RWLocker is a Locker that any number of readers can share. Neither side
// starves the other: whoever comes first is served first, neighbouring readers
// together. On Postgres readers of one client have one place among those who wait: see
// package pg.
type RWLocker interface {
	Locker

	// RLock is Lock for a reader. Whoever holds the lock exclusively may
	// enter it as a reader, and the lock stays exclusive until all leases on it
	// are unlocked: Lease.Downgrade makes it shared. The other way round is
	// ErrUpgrade.
	RLock(ctx context.Context) (*Lease, error)

	// TryRLock is RLock, but reports ErrHeld rather than wait. It does not
	// overtake a writer that waits.
	TryRLock(ctx context.Context) (*Lease, error)
}

// A Client is one party on a backend: its locks exclude those of every other
// client. It is safe for concurrent use. Make one per process and Close it.
type Client struct {
	backend    backend.Backend
	reenterer  backend.Reenterer  // nil: only the client counts entries
	downgrader backend.Downgrader // nil: ErrUnsupported
	transferer backend.Transferer // nil: every goroutine asks the server
	expirer    backend.Expirer    // nil: this process keeps a lock for its minimum hold

	batchReleaser backend.BatchReleaser // nil: holds are released one by one
	opts          Options
	tellsOfCalls  bool                   // to a hook; otherwise nothing is noted for that
	info          Info                   // without the version
	place         string                 // see AcquiredEvent
	version       atomic.Pointer[string] // of the server; nil: no Ping has told it
	log           *slog.Logger
	minTTL        time.Duration
	defaults      settings // for a lock without options

	keeper   *renewal.Keeper
	janitor  backend.Janitor
	late     backend.Janitor // releases what comes while Close waits for the janitor
	minHolds backend.Janitor // waits for minimum holds

	losses   batcher       // reports losses
	cleanups batcher       // releases what is left of lost holds
	retries  batcher       // releases holds again that the server did not answer for
	id       string        // 128 random bits
	lastID   atomic.Uint64 // number of the last request

	short      sync.Once // guards the warning about a very short TTL
	renewalLog logLimit

	mu          sync.Mutex
	closed      bool
	unconfirmed map[*hold]struct{} // holds whose release the server has not confirmed
	names       map[string]*nameState
	mostNames   int // greatest length of names since the map was made
}

// New returns a client of a backend that the program has made by hand, such as
// one on a connection that it has already. The client closes the backend.
func New(b backend.Backend, o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	if err := opts.check(); err != nil {
		return nil, newError("open", "", err)
	}
	if b == nil {
		return nil, newError("open", "", backend.Fail(ErrInvalidConfig, errNoBackend))
	}
	c, err := newClient(b, &opts)
	if err != nil {
		return nil, newError("open", "", err)
	}
	return c, nil
}

// newClient fails if o asks for what b cannot do.
func newClient(b backend.Backend, o *Options) (*Client, error) {
	c := &Client{
		backend: b,
		opts:    *o,
		log:     o.logger(),
		minTTL:  backend.MinTTL,
		id:      randomID(),
		names:   make(map[string]*nameState),
	}
	c.place, c.tellsOfCalls = c.id, o.Hooks.tellsOfCalls()
	c.reenterer, _ = b.(backend.Reenterer)
	c.downgrader, _ = b.(backend.Downgrader)
	c.transferer, _ = b.(backend.Transferer)
	c.batchReleaser, _ = b.(backend.BatchReleaser)
	c.expirer, _ = b.(backend.Expirer)
	if m, ok := b.(backend.MinTTLer); ok {
		c.minTTL = max(c.minTTL, m.MinTTL())
	}
	c.defaults = *newSettings(&c.opts, c.minTTL, nil)
	if c.defaults.err != nil {
		return nil, c.defaults.err
	}
	renewer, _ := b.(backend.Renewer)
	c.keeper = renewal.New(renewer, c.onLosses)
	return c, nil
}

// expires reports whether the server can keep a hold for d without this process.
func (c *Client) expires(d time.Duration) bool {
	return c.expirer != nil && backend.CanExpire(c.backend, d)
}

// Mutex returns the lock of that name. It never fails: a bad name or option is
// the error of every call on it. A Mutex and an RWMutex of one name are the
// same lock.
func (c *Client) Mutex(name string, o ...Option) *Mutex {
	return &Mutex{c.newLock(name, c.settings(o))}
}

// RWMutex returns the lock of that name, which readers can share. It never
// fails: a bad name or option is the error of every call on it.
func (c *Client) RWMutex(name string, o ...Option) *RWMutex {
	return &RWMutex{Mutex{c.newLock(name, c.settings(o))}}
}

func randomID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (o *Options) ttl() time.Duration {
	if o.TTL == 0 {
		return DefaultTTL
	}
	return o.TTL
}
