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
	wanted  bool  // others were
	made    int64 // the transaction that made dir, as it was then; zero: unknown

	changing sync.Mutex // held while its node is being replaced or removed
	path     string     // guarded by session.mu
	watched  bool       // the node is; guarded by session.mu
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
	s, r := n.session, a.request
	h := &backend.Hold{Request: r, Token: n.token, Sent: n.sent, Granted: p.until.Sub(n.sent)}
	if a.isQueued(0) {
		h.Sent = time.Now() // what is said of a hold is counted from its grant
		h.Granted = p.until.Sub(h.Sent)
	}
	held := &held{
		session: s, hold: h, dir: n.dir, place: n.place, path: n.path(),
		alone: n.alone, wanted: a.isQueued(0), released: make(chan struct{}),
	}
	if n.parent != nil {
		held.made = n.parent.Czxid
	}
	h.State = held
	if !s.add(held) {
		return nil
	}
	return h
}

// add begins to keep h. It reports false if the session is over, or must not
// be relied on.
func (s *session) add(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || h.hold.Granted <= 0 || !s.connected && s.b.opts.Strict {
		return false
	}
	s.holds[h.path] = h
	return true
}

// lose tells the owners of holds that they are over. It does not wait for them.
func (b *Backend) lose(holds []*held, cause error) {
	if len(holds) == 0 {
		return
	}
	b.janitor.Go(func(context.Context) {
		for _, h := range holds {
			h.hold.Observer.Lost(cause)
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
		h.releaseLater()
	}
}

// begin reports whether the caller is the one to release h.
func (h *held) begin() bool { return !h.begun.Swap(true) }

// releaseNow releases h in the caller's goroutine, which spares the switches to
// another one and back. If the first answer does not come it goes on like
// release.
func (h *held) releaseNow() {
	if !h.changing.TryLock() { // it is being downgraded
		h.releaseLater()
		return
	}
	err := h.giveBack(once)
	h.changing.Unlock()
	if unclear(err) && !classified(err) {
		h.releaseLater()
		return
	}
	h.done(err)
}

func (h *held) releaseLater() {
	s := h.session
	ok := s.b.janitor.Go(func(context.Context) {
		h.changing.Lock()
		defer h.changing.Unlock()
		h.done(h.giveBack(s.persist))
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
func (h *held) giveBack(persist func(try func() error) error) error {
	s := h.session
	s.forget(h)
	if !h.removal.tried {
		if s.isOver() {
			return h.gone(s.whyOver())
		}
		h.removal = removal{session: s, path: h.path, told: h.wanted}
	}
	switch err := persist(h.removal.try); {
	case errors.Is(err, errOver) && errors.Is(s.whyOver(), backend.ErrClosed):
		return backend.ErrClosed
	case errors.Is(err, errOver):
		return nil // it stood when its owner gave it back, and went then
	case errors.Is(err, gozk.ErrNoNode):
		return backend.Fail(backend.ErrLost, errRemoved)
	case unclear(err):
		return err
	case err != nil:
		return kindOf(err)
	}
	s.extend(h)
	return nil
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
	delete(s.holds, h.path)
	return true
}

// replace swaps the nodes in one transaction. If there is nothing to replace it was
// done before and the reply lost, or else ErrNoNode. It dates a new phase of readers,
// for the hold may have had more tokens than one.
func (s *session) replace(h *held, from, to string) error {
	sent := time.Now()
	_, err := s.conn.Multi(
		&gozk.DeleteRequest{Path: from, Version: -1},
		&gozk.CreateRequest{Path: to, Data: data(h.place.rank, h.hold.Label), Acl: s.b.opts.ACL, Flags: gozk.FlagEphemeral},
		&gozk.SetDataRequest{Path: h.dir, Version: -1},
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
	h.path, h.watched, h.moving = to, false, false
	if ok {
		delete(s.holds, from)
		s.holds[to] = h
	}
	return ok
}
