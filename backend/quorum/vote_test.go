package quorum

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// TestLostForAMoment has a hold lose two of three nodes. A vote that was under way then
// does not make it one again.
func TestLostForAMoment(t *testing.T) {
	b := &Backend{need: 2, nodes: make([]*node, 3)}
	for i := range b.nodes {
		b.nodes[i] = new(node)
	}
	h := b.newHold(t.Context(), backend.Request{TTL: time.Second})
	grant := func(i int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.accept(i, &backend.Hold{Request: h.request, Token: 1})
	}
	grant(0)
	grant(1)
	h.mu.Lock()
	h.held = true
	h.mu.Unlock()
	h.votes[1].query = &query{h: h, node: 1}
	h.votes[1].query.Lost(nil)
	grant(2)
	r := &renewal{h: h, renewed: 2}
	if _, err := r.verdict(); err != backend.ErrLost {
		t.Errorf("a hold that had one node of three is renewed: %v", err)
	}
}

// losses counts what an Observer is told.
type losses struct {
	backend.Observer
	told atomic.Int32
}

func (o *losses) Lost(error) { o.told.Add(1) }

// TestLossIsTold has a hold lose one of two nodes, by whatever word. Its holder is told at once,
// and once.
func TestLossIsTold(t *testing.T) {
	for word, lose := range map[string]func(h *hold, nh *backend.Hold){
		"the node's own": func(h *hold, _ *backend.Hold) {
			h.votes[1].query = &query{h: h, node: 1}
			h.votes[1].query.Lost(nil)
		},
		"a renewal": func(h *hold, nh *backend.Hold) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.takeRenewal(1, nh, backend.ErrLost)
		},
		"a repeated count": func(h *hold, nh *backend.Hold) {
			p := part{&confirmation{h: h}, 1, *nh}
			p.record(backend.ErrLost)
		},
		"a token told before": func(h *hold, nh *backend.Hold) { h.told(1, nh, 9, backend.ErrLost) },
	} {
		t.Run(word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &Backend{need: 2, nodes: []*node{{register: &register{}}, {register: &register{}}}}
				o := new(losses)
				h := b.newHold(t.Context(), backend.Request{TTL: time.Second, Observer: o})
				h.mu.Lock()
				for i := range h.votes {
					h.accept(i, &backend.Hold{Request: h.request, Token: 10})
				}
				h.held = true
				nh := h.votes[1].hold
				h.mu.Unlock()
				for range 2 {
					lose(h, nh)
					synctest.Wait()
				}
				if n := o.told.Load(); n != 1 {
					t.Errorf("the holder is told %d times, want once", n)
				}
			})
		})
	}
}

// TestFrontThatIsLeftSaysWhy leaves a front that is gone, and one that does not vote yet: the
// first has a reason from then on, and the second is waited for.
func TestFrontThatIsLeftSaysWhy(t *testing.T) {
	for _, leave := range []func(*node, *vote){
		func(n *node, v *vote) { v.state = asked; n.gone.Store(true) },
		func(_ *node, v *vote) { v.refuse(&backend.NotReadyError{In: time.Minute}) },
	} {
		b := &Backend{need: 2, nodes: make([]*node, 3)}
		for i := range b.nodes {
			b.nodes[i] = new(node)
		}
		a := b.newAttempt(t.Context(), backend.Request{Name: "x", TTL: time.Second, Wait: true}, 0)
		a.mu.Lock()
		defer a.mu.Unlock()
		left := a.chooseFront()
		a.front = left
		v := &a.votes[left]
		leave(b.nodes[left], v)
		waits := v.state == notReady
		if !a.checkFront() || a.front == left {
			t.Fatalf("the front is %d, as before", a.front)
		}
		if v.err == nil || waits != (v.state == notReady) {
			t.Errorf("it is left for %v, in state %d", v.err, v.state)
		}
	}
}

// A wantedObserver counts how often it is told that somebody waits.
type wantedObserver struct {
	backend.Observer
	told int
}

func (o *wantedObserver) Wanted() { o.told++ }

// TestWantedByTheHoldItself has a node grant late what a hold, downgraded meanwhile, gives back, and the hold
// wait there behind that. Nobody else waits.
func TestWantedByTheHoldItself(t *testing.T) {
	o := new(wantedObserver)
	b := &Backend{need: 1, nodes: []*node{new(node)}}
	h := b.newHold(t.Context(), backend.Request{TTL: time.Second, Observer: o})
	h.mu.Lock()
	late := h.newQuery(0, false)
	last := h.newQuery(0, true)
	h.mu.Unlock()
	late.Wanted()
	if o.told != 0 {
		t.Error("the hold is told of its own request")
	}
	last.Wanted()
	if o.told != 1 {
		t.Errorf("it is told %d times that somebody waits", o.told)
	}
}
