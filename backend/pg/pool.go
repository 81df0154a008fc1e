package pg

import (
	"context"
	"maps"
	"math/bits"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A purpose is what a connection is for.
type purpose uint8

const (
	forHolding   purpose = iota // many locks, of all requests with one lease
	forListening                // listening, and finding out whether readers may join others; it has no locks that anybody waits for
	forWaiting                  // waiting for one lock, and having it then
)

// A sharedKey names a session that many requests share.
type sharedKey struct {
	lease   time.Duration // of the purpose holding
	purpose purpose
}

// listenLease is the lease of the session for forListening. No lock hangs on how soon
// the server notices that it is gone.
const listenLease = time.Minute

// leaseOf is the lease of the session for a hold with that TTL: rounded up by a
// quarter at most, so that there are four leases from each TTL to its double.
func leaseOf(ttl time.Duration) time.Duration {
	ms := uint64(ttl.Milliseconds())
	step := uint64(1) << max(bits.Len64(ms-1)-3, 0)
	return time.Duration((ms+step-1)/step*step) * time.Millisecond
}

// A sharedSession is the session of a sharedKey, or the connecting of it.
type sharedSession struct {
	done    chan struct{} // closed when one of the others is set
	session *session
	err     error
}

// mayConnect reports whether there may be one more connection for purpose p. One for
// holding and one for listening can always be made. It is called with b.mu held.
func (b *Backend) mayConnect(p purpose) bool { return b.conns+b.reservedFor(p) < b.opts.MaxConns }

// reservedFor is how many connections are kept back for other purposes than p. It is
// called with b.mu held.
func (b *Backend) reservedFor(p purpose) (n int) {
	if b.holders == 0 && p != forHolding {
		n++
	}
	if b.sharedSessions[sharedKey{purpose: forListening}] == nil && p != forListening {
		n++
	}
	return n
}

// useShared returns the session of l, which it makes if there is none. The caller
// becomes a user of it.
func (b *Backend) useShared(ctx context.Context, l sharedKey) (*session, error) {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, backend.ErrClosed
		}
		d := b.sharedFor(l)
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

// useSharedNow returns the session of l if it is connected, and has it made otherwise.
// The caller becomes a user of it.
func (b *Backend) useSharedNow(l sharedKey) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	s := b.sharedFor(l).session
	if s != nil {
		s.users++
	}
	return s
}

// sharedFor returns the sharedSession of l, which it makes if there is none. It is
// called with b.mu held.
func (b *Backend) sharedFor(l sharedKey) *sharedSession {
	if d := b.sharedSessions[l]; d != nil {
		return d
	}
	return b.newShared(l)
}

// newShared gives l a session that nobody uses, or has one made. It is called with
// b.mu held.
func (b *Backend) newShared(l sharedKey) *sharedSession {
	d := &sharedSession{done: make(chan struct{})}
	if l.purpose == forHolding {
		if s := b.unused(); s != nil {
			s.setLease(l.lease)
			d.session = s
			close(d.done)
			b.sharedSessions[l] = d
			return d
		}
		if !b.mayConnect(forHolding) {
			if near := b.nearest(l.lease); near != nil {
				return near
			}
		}
	}
	if b.conns >= b.opts.MaxConns { // as when one is set aside, until its locks are given back
		d.err = backend.Fail(backend.ErrUnavailable, errNoConnection)
		close(d.done)
		return d
	}
	b.sharedSessions[l] = d
	lease := l.lease
	if l.purpose == forListening {
		lease = listenLease
	}
	b.countConn(l.purpose, 1)
	ok := b.janitor.Go(func(context.Context) {
		s, err := b.connect(b.ctx, lease, l.purpose)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			s.users--
			if _, lives := b.live[s]; !lives {
				err = backend.Fail(backend.ErrUnavailable, errSilent)
			}
		}
		if d.session, d.err = s, err; err != nil {
			d.session = nil
			delete(b.sharedSessions, l)
		}
		close(d.done)
	})
	if !ok {
		b.countConn(l.purpose, -1)
		d.err = backend.ErrClosed
		delete(b.sharedSessions, l)
		close(d.done)
	}
	return d
}

// unused returns a session that nobody uses: an idle one, or a shared one without
// users. It is called with b.mu held.
func (b *Backend) unused() *session {
	if s := b.popIdle(); s != nil {
		s.users, s.purpose = 0, forHolding
		b.holders++
		return s
	}
	for l, d := range b.sharedSessions {
		if s := d.session; l.purpose == forHolding && s != nil && s.users == 0 {
			delete(b.sharedSessions, l)
			return s
		}
	}
	return nil
}

// nearest returns the shared session for holding whose lease is the least that is no
// less than the given one, or else the greatest. Those that are connected come first.
// It is called with b.mu held.
func (b *Backend) nearest(lease time.Duration) *sharedSession {
	var best *sharedSession
	var its time.Duration
	for l, d := range b.sharedSessions {
		if l.purpose != forHolding {
			continue
		}
		has, nearer := d.session != nil, its < lease && l.lease > its || l.lease >= lease && l.lease < its
		if best == nil || has && best.session == nil || nearer && has == (best.session != nil) {
			best, its = d, l.lease
		}
	}
	return best
}

// countConn is called with b.mu held.
func (b *Backend) countConn(p purpose, n int) {
	b.conns += n
	if p == forHolding {
		b.holders += n
	}
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

// takeIdle takes a session out of the pool to wait. The caller is its only user. It
// is called with b.mu held.
func (b *Backend) takeIdle(lease time.Duration) *session {
	s := b.popIdle()
	if s != nil {
		s.users = 1
		s.setLease(lease)
	}
	return s
}

// takeForWait returns a session that only the caller uses, to wait.
func (b *Backend) takeForWait(ctx context.Context, lease time.Duration) (*session, error) {
	b.mu.Lock()
	if s := b.takeIdle(lease); s != nil {
		b.mu.Unlock()
		return s, nil
	}
	if !b.mayConnect(forWaiting) {
		b.mu.Unlock()
		return nil, backend.Fail(backend.ErrUnavailable, errNoConnection)
	}
	b.countConn(forWaiting, 1)
	b.mu.Unlock()
	return b.connect(ctx, lease, forWaiting)
}

// connect makes a session, which only the caller uses and which has been counted.
func (b *Backend) connect(ctx context.Context, lease time.Duration, p purpose) (*session, error) {
	s, err := b.dial(ctx, lease, p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && b.closed {
		s.terminate()
		_ = s.conn.Close()
		err = backend.ErrClosed
	}
	if err != nil {
		b.countConn(p, -1)
		b.offerSlots()
		return nil, err
	}
	s.users = 1
	b.live[s] = struct{}{}
	b.sessions.Go(s.read)
	s.mu.Lock()
	s.setDeadline(time.Now().Add(lease / 2))
	s.mu.Unlock()
	return s, nil
}

// stopUsing ends one use of s.
func (b *Backend) stopUsing(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.users--
}

// putBack puts a session that only the caller used into the pool.
func (b *Backend) putBack(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putIdle(s)
}

// putIdle is putBack with b.mu held.
func (b *Backend) putIdle(s *session) {
	s.users = 0
	if _, alive := b.live[s]; alive {
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
	if _, lives := b.live[s]; lives && s.purpose == forHolding {
		b.countConn(forHolding, -1)
		s.purpose = forWaiting
		b.countConn(forWaiting, 1)
	}
	maps.DeleteFunc(b.sharedSessions, func(_ sharedKey, d *sharedSession) bool { return d.session == s })
}

// removeSession removes s from the pool and from the shared sessions. It is called
// with b.mu held.
func (b *Backend) removeSession(s *session) {
	if _, alive := b.live[s]; !alive {
		return
	}
	delete(b.live, s)
	b.idle = without(b.idle, s)
	maps.DeleteFunc(b.sharedSessions, func(_ sharedKey, d *sharedSession) bool { return d.session == s })
	b.countConn(s.purpose, -1)
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
	if s.purpose == forListening {
		b.notifyAll()
	}
	b.mu.Unlock()
	for _, h := range holders {
		if h.observer != nil {
			h.observer.Lost(cause)
		}
	}
}
