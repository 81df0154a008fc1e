package zk

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// held is what the backend knows of a hold.
type held struct {
	session *session
	hold    *backend.Hold
	dir     string
	place   place
	alone   bool  // nobody else was there when it was queued
	waited  bool  // others were
	streak  bool  // it continues a streak, so that the lock's node is watched
	made    int64 // the transaction that made dir, as it was then; zero: unknown

	changing sync.Mutex // held while its node is being replaced or removed
	path     string     // guarded by session.mu
	watched  bool       // the node is; guarded by session.mu
	wanted   bool       // its owner knows that somebody waits; guarded by session.mu
	moving   bool       // it is being replaced; guarded by session.mu

	removal  removal
	begun    atomic.Bool   // somebody releases it
	released chan struct{} // closed when err is set
	err      error
}

// grant makes a hold of a node that nothing bars. It proves the session anew
// unless that was done a short while ago: a watch says that others are gone, but
// not that this session goes on.
func (a *attempt) grant(n *node) (*backend.Hold, error) {
	s := n.session
	pause := backend.Backoff{}
	for {
		p, err := s.prove(s.leaseTime()/3, a.left)
		switch {
		case err == nil:
			if h := a.claim(n, p); h != nil {
				return h, nil
			}
		case errors.Is(err, errLeft), errors.Is(err, errOver), !unclear(err):
			return nil, err
		}
		if !backend.Sleep(s.ctx, pause.Next()) {
			return nil, errOver
		}
	}
}

// claim registers the hold, if the session can still be believed in.
func (a *attempt) claim(n *node, p proof) *backend.Hold {
	if p.left() <= 0 {
		return nil
	}
	s, r := n.session, a.request
	sent := n.sent
	if a.isQueued(0) {
		sent = p.sent // the node is older than the hold, and its grant is no proof
	}
	h := &backend.Hold{Request: r, Token: n.token, Sent: sent, Granted: p.until.Sub(sent)}
	held := &held{
		session: s, hold: h, dir: n.dir, place: n.place, path: n.path(),
		alone: n.alone, streak: n.plain && n.alone, waited: a.isQueued(0), released: make(chan struct{}),
	}
	if n.parent != nil {
		held.made = n.parent.Czxid
	}
	h.State = held
	h.TellsWanted = held.exclusive() && (held.streak || !r.Fixed)
	h.WantedAtOnce = held.streak
	if !s.add(held) {
		return nil
	}
	if held.streak && !s.onStreak(held.dir) { // somebody has come since it was asked for
		s.want(held)
	}
	return h
}

// exclusive reports whether h was granted to a writer.
func (h *held) exclusive() bool { return h.place.mode == backend.Exclusive }

// add begins to keep h. It reports false if the session is over, or must not
// be relied on.
func (s *session) add(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || h.hold.Granted <= 0 || !s.connected && s.b.opts.Strict {
		return false
	}
	s.holds[h.path] = h
	if h.exclusive() {
		s.writers[h.dir] = h
	}
	return true
}

// lose tells the owners of holds that they are over. It does not wait for them.
func (b *Backend) lose(holds []*held, cause error) {
	if len(holds) == 0 {
		return
	}
	b.janitor.Go(func(context.Context) {
		for _, h := range holds {
			if o := h.hold.Observer; o != nil {
				o.Lost(cause)
			}
		}
	})
}

// holding reports whether h has neither been released nor taken away.
func (s *session) holding(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[h.path] == h
}

// release begins to remove the hold's node, which is done when h.released is
// closed, and goes on until then.
func (h *held) release() {
	if h.begin() {
		h.finish()
	}
}

// begin reports whether the caller is the one to release h.
func (h *held) begin() bool { return !h.begun.Swap(true) }

func (h *held) finish() {
	ok := h.session.b.janitor.Go(func(context.Context) {
		h.changing.Lock()
		defer h.changing.Unlock()
		h.done(h.giveBack())
	})
	if !ok {
		h.done(backend.ErrClosed)
	}
}

func (h *held) done(err error) {
	h.err = err
	close(h.released)
}

// giveBack has the node removed. The caller has locked h.changing.
func (h *held) giveBack() error {
	s := h.session
	s.forget(h)
	if !h.removal.tried {
		if s.isOver() {
			return h.gone(s.whyOver())
		}
		h.removal = h.newRemoval()
	}
	switch err := s.persist(h.removal.try); {
	case errors.Is(err, errOver) && errors.Is(s.whyOver(), backend.ErrClosed):
		return backend.ErrClosed
	case errors.Is(err, errOver):
		return nil // it stood when its owner gave it back, and went then
	case errors.Is(err, gozk.ErrNoNode):
		return backend.Fail(backend.ErrLost, errRemoved)
	case err != nil:
		return kindOf(err)
	}
	s.extend(h)
	return nil
}

// newRemoval is how the node of h is to be deleted.
func (h *held) newRemoval() removal {
	r := removal{session: h.session, path: h.path}
	if h.waited && h.exclusive() && h.path == h.dir+"/"+h.place.name {
		r.ending = endsFreeing
	}
	return r
}

// outcome waits for the release of h.
func (h *held) outcome(ctx context.Context) error {
	select {
	case <-h.released:
		return h.err
	default:
	}
	select {
	case <-h.released:
		return h.err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
}

// gone is the error of a call about a hold that went with its session.
func (h *held) gone(cause error) error {
	if errors.Is(cause, backend.ErrClosed) {
		return backend.ErrClosed
	}
	return backend.Fail(backend.ErrLost, cause)
}

// downgrade puts a reader's node in the place of the writer's. It has the same
// number and rank, so that it stays ahead of whoever waits.
func (h *held) downgrade() error {
	h.changing.Lock()
	defer h.changing.Unlock()
	s := h.session
	from, to := h.path, h.dir+"/"+h.place.asReader()
	if !s.move(h) {
		return h.gone(cmp.Or(s.whyOver(), errRemoved))
	}
	err := error(nil)
	if from != to {
		err = s.persist(func() error { return s.replace(h, from, to) })
	}
	switch {
	case errors.Is(err, errOver), err == nil && !s.moved(h, to):
		return h.gone(cmp.Or(s.whyOver(), errDisconnected))
	case errors.Is(err, gozk.ErrNoNode):
		s.forget(h)
		return h.gone(errRemoved)
	case err != nil:
		s.moved(h, from) // it has not
	}
	return kindOf(err)
}

// forget takes h off the list of holds, so that the end of its node is no loss.
// It reports false if h was not on it.
func (s *session) forget(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds[h.path] != h {
		return false
	}
	s.drop(h)
	return true
}

// drop takes h off all lists. It is called with s.mu held.
func (s *session) drop(h *held) {
	delete(s.holds, h.path)
	if s.writers[h.dir] == h {
		delete(s.writers, h.dir)
	}
}

// replace swaps the nodes in one transaction. If there is nothing to replace it was
// done before and the reply lost, or else ErrNoNode. Who watches the writer's node
// hears of a change, and not of its end, which would tell the next writer to go on.
func (s *session) replace(h *held, from, to string) error {
	sent := time.Now()
	_, err := s.conn.Multi(
		&gozk.SetDataRequest{Path: from, Version: -1},
		&gozk.DeleteRequest{Path: from, Version: -1},
		&gozk.CreateRequest{Path: to, Data: data(h.place.rank, h.hold.Label, h.hold.Token), Acl: s.b.opts.ACL, Flags: gozk.FlagEphemeral},
	)
	if errors.Is(err, gozk.ErrNoNode) {
		_, _, err = s.conn.Get(to)
	}
	if err == nil {
		s.proved(sent)
	}
	return err
}

// move notes that the node of h is about to be replaced, the end of which is no
// loss. It reports false if h is not held any more.
func (s *session) move(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.moving = s.holds[h.path] == h
	return h.moving
}

// moved notes where the node of h is now. It reports false if h was lost
// meanwhile, with its session or its connection.
func (s *session) moved(h *held, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, ok := h.path, s.holds[h.path] == h
	h.watched, h.moving = false, false
	if ok && to != from {
		s.drop(h)
		h.path = to
		s.holds[to] = h
	}
	return ok
}
