package dlock

import (
	"math/rand/v2"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// A model is a queue in the plainest words: who is inside, and who waits in
// which order.
type model struct {
	inside, queue []*waiter
}

func (m *model) admit() {
	for len(m.queue) > 0 && m.fits(m.queue[0]) {
		m.inside = append(m.inside, m.queue[0])
		m.queue = m.queue[1:]
	}
}

func (m *model) fits(w *waiter) bool {
	for _, other := range m.inside {
		if w.mode == backend.Exclusive || other.mode == backend.Exclusive {
			return false
		}
	}
	return true
}

func (m *model) drop(list *[]*waiter, i int) *waiter {
	w := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return w
}

// Random entries, exits and cancellations leave a queue and its model with the
// same goroutines inside and waiting.
func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var g queue
		var m model
		for step := range 300 {
			switch k := rnd.IntN(10); {
			case k < 5:
				w := &waiter{mode: backend.Mode(1 + rnd.IntN(2)), ready: make(chan struct{}, 1)}
				if in := g.tryEnter(w.mode); in {
					w.granted = true
				} else if rnd.IntN(4) == 0 {
					break // a try that fails leaves nothing
				} else {
					g.enqueue(w)
				}
				m.queue = append(m.queue, w)
			case k < 8 && len(m.inside) > 0:
				if w := m.drop(&m.inside, rnd.IntN(len(m.inside))); rnd.IntN(2) == 0 {
					g.withdraw(w) // it left just when it was let in
				} else {
					g.leave(w.mode)
				}
			case k == 8 && len(m.queue) > 0:
				g.withdraw(m.drop(&m.queue, rnd.IntN(len(m.queue))))
			case k == 9 && len(m.inside) == 1 && m.inside[0].mode == backend.Exclusive:
				m.inside[0].mode = backend.Shared
				g.downgrade()
			}
			m.admit()
			compare(t, &g, &m, seed, step)
		}
	}
}

func compare(t *testing.T, g *queue, m *model, seed uint64, step int) {
	t.Helper()
	for _, w := range m.inside {
		if !w.granted {
			t.Fatalf("seed %d step %d: a waiter should be inside", seed, step)
		}
	}
	w := g.head
	for i, want := range m.queue {
		if w != want || want.granted {
			t.Fatalf("seed %d step %d: place %d of the queue differs", seed, step, i)
		}
		w = w.next
	}
	if w != nil || g.isIdle() != (len(m.inside)+len(m.queue) == 0) {
		t.Fatalf("seed %d step %d: the queue keeps somebody", seed, step)
	}
}
