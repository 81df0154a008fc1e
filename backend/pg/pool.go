package pg

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A purpose is what connections that many requests share are for.
type purpose uint8

const (
	holding   purpose = iota // locks
	probing                  // finding out whether readers may join others; it holds nothing
	listening                // for locks that become free; it holds second keys
)

// A line is a purpose with a lease.
type line struct {
	ttl     time.Duration
	purpose purpose
}

// A dialing is the session of a line, once it is there.
type dialing struct {
	done    chan struct{} // closed when one of the others is set
	session *session
	err     error
}

// shared returns the session of l, and makes one if there is none. The caller
// becomes a user of it.
func (b *Backend) shared(ctx context.Context, l line) (*session, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, backend.ErrClosed
	}
	d := b.lines[l]
	if d != nil && d.session != nil {
		d.session.users++
		b.mu.Unlock()
		return d.session, nil
	}
	if d == nil {
		d = b.newLine(l)
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
	return b.shared(ctx, l) // counts us in, if the session still lives
}

// newLine gives l an idle session or has one made. It is called with b.mu held.
func (b *Backend) newLine(l line) *dialing {
	d := &dialing{done: make(chan struct{})}
	b.lines[l] = d
	if l.purpose != listening {
		d.session = b.takeIdle(l.ttl)
	}
	if d.session != nil {
		d.session.users-- // nobody yet
		close(d.done)
		return d
	}
	ok := b.janitor.Go(func(context.Context) {
		s, err := b.connect(b.ctx, l)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			s.users--
			d.session = s
		} else {
			d.err = err
			delete(b.lines, l)
		}
		close(d.done)
	})
	if !ok {
		d.err = backend.ErrClosed
		close(d.done)
	}
	return d
}

// takeIdle takes a session out of the pool, nil if there is none. The caller
// is its only user. It is called with b.mu held.
func (b *Backend) takeIdle(ttl time.Duration) *session {
	n := len(b.idle) - 1
	if n < 0 {
		return nil
	}
	s := b.idle[n]
	b.idle = b.idle[:n]
	s.users = 1
	s.retune(ttl)
	return s
}

// take returns a session that only the caller uses.
func (b *Backend) take(ctx context.Context, ttl time.Duration) (*session, error) {
	b.mu.Lock()
	s := b.takeIdle(ttl)
	b.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return b.connect(ctx, line{ttl, holding})
}

// open makes a session, which only the caller uses.
func (b *Backend) connect(ctx context.Context, l line) (*session, error) {
	s, err := b.dial(ctx, l)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		s.bye()
		_ = s.conn.Close()
		return nil, backend.ErrClosed
	}
	s.users = 1
	b.live[s] = struct{}{}
	b.sessions.Go(s.read)
	s.mu.Lock()
	s.setDeadline(time.Now().Add(l.ttl / 2))
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
	delete(b.live, s)
	b.idle = without(b.idle, s)
	for l, d := range b.lines {
		if d.session == s {
			delete(b.lines, l)
		}
	}
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
	if s.listens {
		b.wakeAll()
	}
	b.mu.Unlock()
	for _, h := range holders {
		if h.observer != nil {
			h.observer.Lost(cause)
		}
	}
}
