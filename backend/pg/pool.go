package pg

import (
	"context"
	"maps"
	"math/bits"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Many requests share a session: the locks that are granted at once are on one for each
// lease. Another one listens, and finds out whether readers may join others: it has no locks
// that anybody waits for. Among those that are shared it has the key forListening, as no lease
// is zero. Each session that waits for a lock, or has got it so, is a request's own.
const forListening time.Duration = 0

// listenLease is the lease of the session that listens. No lock hangs on how soon
// the server notices that it is gone.
const listenLease = time.Minute

// leaseOf is the lease of the session for a hold with that TTL: rounded up by a
// quarter at most, so that there are four leases from each TTL to its double.
func leaseOf(ttl time.Duration) time.Duration {
	ms := uint64(ttl.Milliseconds())
	step := uint64(1) << max(bits.Len64(ms-1)-3, 0)
	return time.Duration((ms+step-1)/step*step) * time.Millisecond
}

// A sharedSession is one that is shared, or the connecting of it.
type sharedSession struct {
	outcome          // of connecting
	session *session // nil until then, and after a failure
}

// room is how many more connections there may be to hold locks on. One that listens can
// always be made. It is called with b.mu held.
func (b *Backend) room() int {
	if b.shared[forListening] == nil {
		return b.opts.MaxConns - b.conns - 1
	}
	return b.opts.MaxConns - b.conns
}

// roomToWait is how many more there may be to wait on: one to hold locks on can always be
// made too. It is called with b.mu held.
func (b *Backend) roomToWait() int {
	for key := range b.shared {
		if key != forListening {
			return b.room()
		}
	}
	return b.room() - 1
}

// useShared returns the session of a lease, or the one that listens, which it makes if there
// is none. The caller becomes a user of it.
func (b *Backend) useShared(ctx context.Context, key time.Duration) (*session, error) {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, backend.ErrClosed
		}
		d := b.sharedFor(key)
		if d.session != nil {
			d.session.users++
			b.mu.Unlock()
			return d.session, nil
		}
		b.mu.Unlock()
		select {
		case <-d.done:
		case <-ctx.Done():
			return nil, backend.WaitEnded(ctx, false)
		case <-b.ctx.Done():
			return nil, backend.ErrClosed
		}
		if d.err != nil {
			return nil, d.err
		}
	}
}

// sharedFor returns what is shared by that key. If there is none it takes a session that
// nobody uses, or has one made. It is called with b.mu held.
func (b *Backend) sharedFor(key time.Duration) *sharedSession {
	if d := b.shared[key]; d != nil {
		return d
	}
	d := &sharedSession{outcome: *newOutcome()}
	if key != forListening {
		if s := b.unused(); s != nil {
			s.setLease(key)
			s.shared, d.session = true, s
			d.set(nil)
			b.shared[key] = d
			return d
		}
		if b.room() < 1 {
			if near := b.nearest(key); near != nil {
				return near
			}
		}
	}
	if b.conns >= b.opts.MaxConns { // as when one is set aside, until its locks are given back
		d.set(backend.Fail(backend.ErrUnavailable, errNoConnection))
		return d
	}
	b.shared[key] = d
	b.conns++
	if !b.janitor.Go(func(context.Context) { b.connectShared(key, d) }) {
		b.conns--
		delete(b.shared, key)
		d.set(backend.ErrClosed)
	}
	return d
}

// connectShared makes the session of d.
func (b *Backend) connectShared(key time.Duration, d *sharedSession) {
	s, err := b.connect(b.ctx, key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		s.shared = true
		s.users--
		if _, lives := b.live[s]; lives {
			d.session = s
		} else {
			err = backend.Fail(backend.ErrUnavailable, errSilent)
		}
	}
	if err != nil {
		delete(b.shared, key)
	}
	d.set(err)
}

// unused returns a session that nobody uses: an idle one, or a shared one without
// users. It is called with b.mu held.
func (b *Backend) unused() *session {
	if s := b.popIdle(); s != nil {
		return s
	}
	for key, d := range b.shared {
		if s := d.session; key != forListening && s != nil && s.users == 0 {
			delete(b.shared, key)
			return s
		}
	}
	return nil
}

// nearest returns the shared session to hold on whose lease is the least that is no
// less than the given one, or else the greatest. Those that are connected come first.
// It is called with b.mu held.
func (b *Backend) nearest(lease time.Duration) *sharedSession {
	var best *sharedSession
	var its time.Duration
	for key, d := range b.shared {
		if key == forListening {
			continue
		}
		has, nearer := d.session != nil, its < lease && key > its || key >= lease && key < its
		if best == nil || has && best.session == nil || nearer && has == (best.session != nil) {
			best, its = d, key
		}
	}
	return best
}

// popIdle takes a session out of the pool, nil if there is none. It is called with
// b.mu held.
func (b *Backend) popIdle() *session {
	n := len(b.idle) - 1
	if n < 0 {
		return nil
	}
	s := b.idle[n]
	b.idle = b.idle[:n]
	return s
}

// takeForWait returns a session that only the caller uses, to wait.
func (b *Backend) takeForWait(ctx context.Context, lease time.Duration) (*session, error) {
	b.mu.Lock()
	if s := b.popIdle(); s != nil {
		defer b.mu.Unlock()
		s.users = 1
		s.setLease(lease)
		return s, nil
	}
	if b.roomToWait() < 1 {
		b.mu.Unlock()
		return nil, backend.Fail(backend.ErrUnavailable, errNoConnection)
	}
	b.conns++
	b.mu.Unlock()
	return b.connect(ctx, lease)
}

// connect makes a session with that lease, or one that listens, which only the caller uses
// and which has been counted.
func (b *Backend) connect(ctx context.Context, key time.Duration) (*session, error) {
	s, err := b.dial(ctx, key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && b.closed {
		s.terminate()
		_ = s.conn.Close()
		err = backend.ErrClosed
	}
	if err != nil {
		b.conns--
		b.offerSlots()
		return nil, err
	}
	s.users = 1
	b.live[s] = struct{}{}
	b.sessions.Go(s.read)
	s.mu.Lock()
	s.setDeadline(time.Now().Add(s.ttl / 2))
	s.mu.Unlock()
	return s, nil
}

// stopUsing ends one use of s. A session that is not shared goes into the pool.
func (b *Backend) stopUsing(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endUse(s)
}

// endUse is stopUsing with b.mu held.
func (b *Backend) endUse(s *session) {
	s.users--
	if _, lives := b.live[s]; lives && !s.shared {
		b.idle = append(b.idle, s)
		b.offerSlots()
	}
}

// retireUnused removes s from the pool if nobody uses it, and reports whether that is
// so.
func (b *Backend) retireUnused(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.users > 0 {
		return false
	}
	b.removeSession(s)
	return true
}

// setAside has s be used no more by those who come, because somebody has removed the
// sequence of tokens: a new connection makes another. It counts until its locks are given
// back.
func (b *Backend) setAside(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unshare(s)
}

func (b *Backend) unshare(s *session) {
	maps.DeleteFunc(b.shared, func(_ time.Duration, d *sharedSession) bool { return d.session == s })
}

// removeSession removes s from the pool and from the shared sessions. It is called
// with b.mu held.
func (b *Backend) removeSession(s *session) {
	if _, lives := b.live[s]; !lives {
		return
	}
	delete(b.live, s)
	b.idle = without(b.idle, s)
	b.unshare(s)
	b.conns--
	b.offerSlots()
}

// loseSession ends all grants of s and tells their holders.
func (b *Backend) loseSession(s *session, cause error) {
	b.mu.Lock()
	b.removeSession(s)
	var holders []*hold
	for g := range s.grants {
		holders = append(holders, g.holds...)
		b.dropGrant(g)
	}
	if s.listens {
		b.notifyAll()
	}
	b.mu.Unlock()
	for _, h := range holders {
		h.request.Lost(cause)
	}
}
