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
	"github.com/dlock-go/dlock/internal/keepalive"
)

// A Locker is one named lock. It is safe for concurrent use: goroutines that
// call Lock on the same Locker exclude one another, as on a sync.Mutex.
type Locker interface {
	// Lock waits until the lock is held or ctx is done. ctx bounds the wait
	// only: it has no say once Lock has returned.
	//
	// If ctx came from Lease.Context of a live lease on this lock, Lock
	// enters it again. The lock is free when every lease on it is unlocked.
	Lock(ctx context.Context) (*Lease, error)

	// TryLock is Lock, but reports ErrHeld rather than wait.
	TryLock(ctx context.Context) (*Lease, error)
}

// An RWLocker is a Locker that any number of readers can share. Neither side
// starves the other: whoever comes first is served first, neighbouring readers
// together.
type RWLocker interface {
	Locker

	// RLock is Lock for a reader. Whoever holds the lock exclusively may
	// enter it as a reader; the other way round is ErrUpgrade.
	RLock(ctx context.Context) (*Lease, error)

	// TryRLock is RLock, but reports ErrHeld rather than wait. It does not
	// overtake a writer that waits.
	TryRLock(ctx context.Context) (*Lease, error)
}

// A Client is one party on a backend: its locks exclude those of every other
// client. It is safe for concurrent use. Make one per process and Close it.
type Client struct {
	backend    backend.Backend
	reenterer  backend.Reenterer  // nil: entries are counted here alone
	downgrader backend.Downgrader // nil: ErrUnsupported
	transferer backend.Transferer // nil: every goroutine asks the server
	opts       Options
	log        *slog.Logger
	minTTL     time.Duration
	defaults   settings // of a lock that is made without options

	keeper  *keepalive.Keeper
	janitor backend.Janitor
	id      string        // 128 random bits
	lastID  atomic.Uint64 // counts requests

	waiters sync.Pool // of this client alone: a channel must not leave its synctest bubble

	mu       sync.Mutex
	closed   bool
	names    map[string]*doorway
	idle     *doorway // in names, though nobody needs it just now
	idleName string   // its name
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
	return newClient(b, &opts), nil
}

func newClient(b backend.Backend, o *Options) *Client {
	c := &Client{
		backend: b,
		opts:    *o,
		log:     o.logger(),
		minTTL:  backend.MinTTL,
		id:      randomID(),
		names:   make(map[string]*doorway),
	}
	c.reenterer, _ = b.(backend.Reenterer)
	c.downgrader, _ = b.(backend.Downgrader)
	c.transferer, _ = b.(backend.Transferer)
	if m, ok := b.(backend.MinTTLer); ok {
		c.minTTL = max(c.minTTL, m.MinTTL())
	}
	c.defaults = *newSettings(c.opts.ttl(), c.minTTL, nil)
	renewer, _ := b.(backend.Renewer)
	c.keeper = keepalive.New(renewer)
	return c
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

// farewell is how long Close takes at most when its context is done already.
const farewell = time.Second

// Close unlocks every lease, ends every call that waits with ErrClosed, and
// closes the backend. It waits for what the server has to be told until ctx is
// done, or for a second at most if it is done already; what could not be told
// then, the server finds out by itself. The leases report ErrClosed at once, calls
// that wait in a queue on the server end last. Calls after the first do nothing and
// return nil.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return newError("close", "", errNilContext)
	}
	if c == nil || c.backend == nil {
		return newError("close", "", backend.Fail(ErrInvalidConfig, errZeroClient))
	}
	holds, first := c.shut()
	if !first {
		return nil
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = backend.Detach(ctx, farewell)
		defer cancel()
	}
	c.releaseAll(ctx, holds)
	err := c.janitor.Close(ctx)
	c.keeper.Close()
	if e := c.backend.Close(ctx); e != nil {
		err = e
	}
	if err != nil {
		return newError("close", "", err)
	}
	return nil
}

// shut turns newcomers and waiters away and returns the holds there are.
// Whoever waits under a lease hears of its end.
func (c *Client) shut() (holds []*hold, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	c.closed = true
	for _, d := range c.names {
		d.turnAway(ErrClosed)
		for h := d.holds; h != nil; h = h.next {
			holds = append(holds, h)
		}
	}
	return holds, true
}

// releaseAll ends the holds side by side. Each tells its leases first.
func (c *Client) releaseAll(ctx context.Context, holds []*hold) {
	var all sync.WaitGroup
	for _, h := range holds {
		all.Go(func() { h.close(ctx) })
	}
	all.Wait()
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
