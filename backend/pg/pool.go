package pg

import (
	"context"
	"math/bits"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A purpose is what a connection is for.
type purpose uint8

const (
	holding  purpose = iota // many locks, of all requests with one lease
	aside                   // listening, and finding out whether readers may join others; it has no locks that anybody waits for
	queueing                // waiting for one lock, and having it then
)

// A line names a connection that many requests share.
type line struct {
	lease   time.Duration // of the purpose holding
	purpose purpose
}

// asideLease is that of the connection for the purpose aside, of which nothing hangs
// on how soon the server finds out that it is gone.
const asideLease = time.Minute

// leaseOf is the lease of the session for a hold with that TTL: rounded up by a
// quarter at most, so that there are four leases from each TTL to its double.
func leaseOf(ttl time.Duration) time.Duration {
	ms := uint64(ttl.Milliseconds())
	step := uint64(1) << max(bits.Len64(ms-1)-3, 0)
	return time.Duration((ms+step-1)/step*step) * time.Millisecond
}

// A dialing is the session of a line, once it is there.
type dialing struct {
	done    chan struct{} // closed when one of the others is set
	session *session
	err     error
}

// mayConnect reports whether there may be one more connection for purpose p. One for
// holding and one aside can always be made. It is called with b.mu held.
func (b *Backend) mayConnect(p purpose) bool { return b.conns+b.spare(p) < b.opts.MaxConns }

// spare is how many connections are kept for other purposes than p. It is called with
// b.mu held.
func (b *Backend) spare(p purpose) (n int) {
	if b.holders == 0 && p != holding {
		n++
	}
	if b.lines[line{purpose: aside}] == nil && p != aside {
		n++
	}
	return n
}

// shared returns the session of l, and makes one if there is none. The caller
// becomes a user of it.
func (b *Backend) shared(ctx context.Context, l line) (*session, error) {
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, backend.ErrClosed
		}
		d := b.lineOf(l)
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

// sharedSoon returns the session of l if it is there, and has one made otherwise. The
// caller becomes a user of it.
func (b *Backend) sharedSoon(l line) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	s := b.lineOf(l).session
	if s != nil {
		s.users++
	}
	return s
}

// lineOf is called with b.mu held.
func (b *Backend) lineOf(l line) *dialing {
	if d := b.lines[l]; d != nil {
		return d
	}
	return b.newLine(l)
}

// newLine gives l a session that is there, or has one made. It is called with b.mu
// held.
func (b *Backend) newLine(l line) *dialing {
	d := &dialing{done: make(chan struct{})}
	if l.purpose == holding {
		if s := b.unused(); s != nil {
			s.retune(l.lease)
			d.session = s
			close(d.done)
			b.lines[l] = d
			return d
		}
		if !b.mayConnect(holding) {
			if near := b.nearest(l.lease); near != nil {
				return near
			}
		}
	}
	b.lines[l] = d
	lease := l.lease
	if l.purpose == aside {
		lease = asideLease
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
			delete(b.lines, l)
		}
		close(d.done)
	})
	if !ok {
		b.countConn(l.purpose, -1)
		d.err = backend.ErrClosed
		delete(b.lines, l)
		close(d.done)
	}
	return d
}

// unused returns a session for a new line: an idle one, or that of a line which
// nobody uses. It is called with b.mu held.
func (b *Backend) unused() *session {
	if s := b.popIdle(); s != nil {
		s.users, s.purpose = 0, holding
		b.holders++
		return s
	}
	for l, d := range b.lines {
		if s := d.session; l.purpose == holding && s != nil && s.users == 0 {
			delete(b.lines, l)
			return s
		}
	}
	return nil
}

// nearest returns the line for holding with the least lease that is no less than the
// given one, or with the greatest: of those that have a session, if there is one. It
// is called with b.mu held.
func (b *Backend) nearest(lease time.Duration) *dialing {
	var best *dialing
	var its time.Duration
	for l, d := range b.lines {
		if l.purpose != holding {
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
	if p == holding {
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
		s.retune(lease)
	}
	return s
}

// take returns a session that only the caller uses, to wait.
func (b *Backend) take(ctx context.Context, lease time.Duration) (*session, error) {
	b.mu.Lock()
	if s := b.takeIdle(lease); s != nil {
		b.mu.Unlock()
		return s, nil
	}
	if !b.mayConnect(queueing) {
		b.mu.Unlock()
		return nil, backend.Fail(backend.ErrUnavailable, errNoRoom)
	}
	b.countConn(queueing, 1)
	b.mu.Unlock()
	return b.connect(ctx, lease, queueing)
}

// connect makes a session, which only the caller uses and which has been counted.
func (b *Backend) connect(ctx context.Context, lease time.Duration, p purpose) (*session, error) {
	s, err := b.dial(ctx, lease, p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && b.closed {
		s.bye()
		_ = s.conn.Close()
		err = backend.ErrClosed
	}
	if err != nil {
		b.countConn(p, -1)
		b.offerRoom()
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

// leave ends one use of s.
func (b *Backend) leave(s *session) {
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
		b.offerRoom()
	}
}

// retire takes s out of everything if nobody uses it, and reports whether
// that is so.
func (b *Backend) retire(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.users > 0 {
		return false
	}
	b.forget(s)
	return true
}

// forget takes s out of pool and lines. It is called with b.mu held.
func (b *Backend) forget(s *session) {
	if _, alive := b.live[s]; !alive {
		return
	}
	delete(b.live, s)
	b.idle = without(b.idle, s)
	for l, d := range b.lines {
		if d.session == s {
			delete(b.lines, l)
		}
	}
	b.countConn(s.purpose, -1)
	b.offerRoom()
}

// lost ends everything that s was good for, and tells its holders.
func (b *Backend) lost(s *session, cause error) {
	b.mu.Lock()
	b.forget(s)
	var holders []*hold
	for g := range s.grants {
		holders = append(holders, g.holds...)
		b.drop(g)
	}
	if s.purpose == aside {
		b.wakeAll()
	}
	b.mu.Unlock()
	for _, h := range holders {
		if h.observer != nil {
			h.observer.Lost(cause)
		}
	}
}
