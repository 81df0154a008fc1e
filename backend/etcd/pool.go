package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A shelf has the sessions of one TTL, the newest last.
type shelf struct {
	sessions []*session
	making   *making // nil: no session is being made
}

// A making is a session that is being made for all who need one.
type making struct {
	done chan struct{}
	err  error // set before done is closed
}

// session returns a session for ttl with room for a key, which it reserves.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	for {
		s, m, err := b.sessionOrMaking(seconds(ttl))
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-m.done:
			if m.err != nil {
				return nil, m.err
			}
		case <-ctx.Done():
			return nil, backend.WaitEnded(ctx, false)
		case <-b.ctx.Done():
			return nil, backend.ErrClosed
		}
	}
}

func (b *Backend) sessionOrMaking(ttl int64) (*session, *making, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sh := b.shelves[ttl]
	if sh == nil {
		sh = &shelf{}
		b.shelves[ttl] = sh
	}
	for _, s := range slices.Backward(sh.sessions) {
		if s.reserve() {
			return s, nil, nil
		}
	}
	if sh.making == nil {
		m := &making{done: make(chan struct{})}
		if !b.janitor.Go(func(ctx context.Context) { b.makeSession(ctx, sh, ttl, m) }) {
			return nil, nil, backend.ErrClosed
		}
		sh.making = m
	}
	return nil, sh.making, nil
}

// makeSession makes a session for everybody who waits for m. None of their
// contexts ends it.
func (b *Backend) makeSession(ctx context.Context, sh *shelf, ttl int64, m *making) {
	ctx, cancel := backend.Bound(ctx, min(time.Duration(ttl)*time.Second, backend.FirstAnswer))
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	s, err := b.newSession(ctx, ttl)
	for errors.Is(err, backend.ErrUnavailable) && backend.Sleep(ctx, grace) {
		s, err = b.newSession(ctx, ttl)
	}
	b.mu.Lock()
	sh.making = nil
	closed := b.closed
	if err == nil && !closed {
		sh.sessions = append(sh.sessions, s)
	}
	b.mu.Unlock()
	m.err = err
	close(m.done)
	if err == nil && closed {
		_ = s.revoke(context.Background()) // too late for Close to do it
	}
}

// unshelve forgets a session that has ended.
func (b *Backend) unshelve(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sh := range b.shelves {
		sh.sessions = slices.DeleteFunc(sh.sessions, func(other *session) bool { return other == s })
	}
}

// endSessions revokes all leases, and with them all keys.
func (b *Backend) endSessions(ctx context.Context) error {
	b.mu.Lock()
	var all []*session
	for _, sh := range b.shelves {
		all = append(all, sh.sessions...)
		sh.sessions = nil
	}
	b.mu.Unlock()
	errs := make([]error, len(all))
	var revoking sync.WaitGroup
	for i, s := range all {
		revoking.Go(func() { errs[i] = s.revoke(ctx) })
	}
	revoking.Wait()
	return errors.Join(errs...)
}
