// Package natsbackend keeps locks in a key-value bucket of NATS JetStream. It is
// an example of a backend that lives outside the module of dlock.
//
// # URL
//
// nats://[user[:password]@]host[:port][,host[:port]...][/bucket][?parameters]
//
// The bucket is dlock unless the path names another. replicas says on how many
// servers it is kept if it has to be made.
//
// # How it works
//
// A lock is one key. Its value lists who holds the lock and who waits, in order,
// and every change is a compare-and-set on its revision. Who waits watches the
// key. The revision of the write that confirmed a hold, times a block of local
// hand-overs, is its fencing token.
//
// A lease is a beat in the value that its holder changes. Whoever waits measures
// on its own clock for how long a beat has stood still, and removes a holder after
// its TTL. The clocks of servers and of other clients do not matter. A TryLock
// alone finds a dead holder only if the same client has tried a TTL before.
//
// # Guarantees
//
// Exclusion and tokens are as good as the bucket: with one replica they survive a
// restart with the data, with three the loss of a server. A bucket that is deleted
// and made anew gives out old tokens. A key without a change for 25 hours, longer
// than any TTL, is forgotten.
package natsbackend

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock/backend"
)

// block is how many tokens each hold has for local hand-overs.
const block = 1 << 10

// exchangeLimit bounds one request. Whoever can goes on with the next.
const exchangeLimit = 2 * time.Second

// keys are the names of locks in the alphabet of NATS.
var keys = backend.NewEncoding("-_/", '=')

// keyLimit keeps subjects short.
const keyLimit = 200

// A Backend is one client of a bucket.
type Backend struct {
	nc      *nats.Conn
	owned   bool
	kv      jetstream.KeyValue
	beat    atomic.Uint64
	sights  sights
	yield   *yielding
	janitor backend.Janitor
	ctx     context.Context // ends with Close
	end     context.CancelFunc
	closing sync.Once
	status  chan nats.Status

	mu       sync.Mutex
	asks     sync.WaitGroup // calls of Acquire; none begins after ctx has ended
	holds    map[*backend.Hold]bool
	rejoined chan struct{} // closed and replaced when the connection is back
}

var (
	_ backend.Renewer    = (*Backend)(nil)
	_ backend.Downgrader = (*Backend)(nil)
	_ backend.Transferer = (*Backend)(nil)
)

// New returns a backend on a connection that stays the caller's. It makes the
// bucket if there is none. A nil Options stands for its zero value.
func New(ctx context.Context, nc *nats.Conn, o *Options) (*Backend, error) {
	kv, err := bucket(ctx, nc, o)
	if err != nil {
		return nil, err
	}
	b := &Backend{
		nc: nc, kv: kv, status: nc.StatusChanged(nats.CONNECTED),
		holds: make(map[*backend.Hold]bool), rejoined: make(chan struct{}),
	}
	if b.yield, err = newYielding(nc, kv.Bucket()); err != nil {
		nc.RemoveStatusListener(b.status)
		return nil, failure(err)
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	b.janitor.Go(b.followConnection)
	return b, nil
}

// followConnection tells those who wait when the connection is back: what they
// watch may have changed unseen.
func (b *Backend) followConnection(context.Context) {
	for {
		select {
		case <-b.status:
			b.mu.Lock()
			close(b.rejoined)
			b.rejoined = make(chan struct{})
			b.mu.Unlock()
		case <-b.ctx.Done():
			return
		}
	}
}

// begin counts a call of Acquire, and reports false after Close.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.asks.Add(1)
	return true
}

func (b *Backend) back() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rejoined
}

func key(name string) string { return keys.Short(name, keyLimit) }

func text(id backend.ID) string { return string(id.AppendTo(nil)) }

// A change is what was read or written last.
type change struct {
	state    *state
	revision uint64
	sent     time.Time // when the write left
	unsure   bool      // a write before it has had no answer
}

// change reads a lock and writes what f makes of it, again if somebody else has
// written meanwhile. If f reports false nothing is written. What was read is not
// from a follower, which may be behind.
func (b *Backend) change(ctx context.Context, key string, f func(s *state, c *change) bool) (*change, error) {
	c := new(change)
	b.yield.wait(ctx, key)
	for vain := 1; ; vain++ {
		if b.ctx.Err() != nil && ctx.Value(closing{}) == nil {
			return c, backend.ErrClosed
		}
		began := time.Now()
		err := b.exchange(ctx, key, f, c)
		if err == nil || !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return c, failure(err)
		}
		if vain%vainWrites == 0 {
			b.yield.ask(key, time.Since(began))
		}
	}
}

// closing marks the context of what Close does.
type closing struct{}

func (b *Backend) exchange(ctx context.Context, key string, f func(*state, *change) bool, c *change) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeLimit)
	defer cancel()
	var value []byte
	var revision uint64
	switch got, err := b.kv.Get(ctx, key); {
	case err == nil:
		value, revision = got.Value(), got.Revision()
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}
	var err error
	if c.state, err = decode(value); err != nil {
		return backend.Fail(backend.ErrConflict, err)
	}
	if !f(c.state, c) {
		return nil
	}
	c.sent = time.Now()
	c.revision, err = b.kv.Update(ctx, key, c.state.encode(), revision)
	if err != nil && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		c.unsure = true
	}
	return err
}

// insist is change until the server answers or ctx ends.
func (b *Backend) insist(ctx context.Context, key string, f func(*state, *change) bool) error {
	unsure, pause := false, backend.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		_, err := b.change(ctx, key, func(s *state, c *change) bool {
			c.unsure = c.unsure || unsure
			return f(s, c)
		})
		if !errors.Is(err, backend.ErrUnavailable) {
			return err
		}
		unsure = true
		if !backend.Sleep(ctx, pause.Next()) {
			return err
		}
	}
}

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	id, lost := text(h.ID), false
	err := b.insist(ctx, key(h.Name), func(s *state, c *change) bool {
		if s.holder(id) == nil {
			lost = !c.unsure
			return false
		}
		s.remove(func(e entry) bool { return e.ID == id })
		return true
	})
	if err == nil {
		b.forget(h)
		if lost {
			return backend.ErrLost
		}
	}
	return err
}

// Renew implements backend.Renewer.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	b.forAll(holds, func(h *backend.Hold) { report(h, b.renew(ctx, h)) })
}

func (b *Backend) renew(ctx context.Context, h *backend.Hold) error {
	id, lost, wanted := text(h.ID), false, false
	c, err := b.change(ctx, key(h.Name), func(s *state, _ *change) bool {
		e := s.holder(id)
		if lost = e == nil; lost {
			return false
		}
		e.Beat, wanted = b.beat.Add(1), len(s.Queue) > 0
		return true
	})
	switch {
	case err != nil:
		return err
	case lost:
		b.forget(h)
		return backend.ErrLost
	}
	h.Sent = c.sent
	if wanted && h.Observer != nil {
		h.Observer.Wanted()
	}
	return nil
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	id, lost := text(h.ID), false
	err := b.insist(ctx, key(h.Name), func(s *state, _ *change) bool {
		e := s.holder(id)
		if lost = e == nil; lost || e.Shared {
			return false
		}
		e.Shared = true
		s.settle()
		return true
	})
	if err == nil && lost {
		return backend.ErrLost
	}
	return err
}

// Transfer implements backend.Transferer.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return backend.NextInBlock(h, block) }

// Close implements backend.Backend.
func (b *Backend) Close(ctx context.Context) (err error) {
	b.closing.Do(func() { err = b.close(ctx) })
	return err
}

func (b *Backend) close(ctx context.Context) error {
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.asks.Wait() // no hold comes after that, and no wish to remove one
	b.mu.Lock()
	var holds []*backend.Hold
	for h := range b.holds {
		holds = append(holds, h)
	}
	b.mu.Unlock()
	closingCtx := context.WithValue(ctx, closing{}, true)
	var failed atomic.Pointer[error]
	b.forAll(holds, func(h *backend.Hold) {
		if err := b.Release(closingCtx, h); err != nil && !errors.Is(err, backend.ErrLost) {
			failed.Store(&err)
		}
	})
	err := b.janitor.Close(ctx)
	b.nc.RemoveStatusListener(b.status)
	b.yield.close()
	if b.owned {
		b.nc.Close()
	}
	if e := failed.Load(); e != nil {
		err = errors.Join(err, *e)
	}
	return err
}

// forAll calls f for each hold, some at a time.
func (b *Backend) forAll(holds []*backend.Hold, f func(*backend.Hold)) {
	const atOnce = 32
	next := make(chan *backend.Hold)
	var workers sync.WaitGroup
	for range min(atOnce, len(holds)) {
		workers.Go(func() {
			for h := range next {
				f(h)
			}
		})
	}
	for _, h := range holds {
		next <- h
	}
	close(next)
	workers.Wait()
}

func (b *Backend) remember(h *backend.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds[h] = true
}

func (b *Backend) forget(h *backend.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holds, h)
}

// failure gives err its kind.
func failure(err error) error {
	switch {
	case err == nil, errors.Is(err, backend.ErrConflict):
		return err
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrPermissionViolation):
		return backend.Fail(backend.ErrAuth, err)
	}
	return backend.Fail(backend.ErrUnavailable, err)
}
