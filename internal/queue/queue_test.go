package queue

import (
	"math/rand/v2"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// A model is a queue in the plainest words: who is inside, and who waits in
// which order.
type model struct {
	inside, queue []*Waiter[int]
}

func (m *model) admit() {
	for len(m.queue) > 0 && m.fits(m.queue[0]) {
		m.inside = append(m.inside, m.queue[0])
		m.queue = m.queue[1:]
	}
}

func (m *model) fits(w *Waiter[int]) bool {
	for _, other := range m.inside {
		if w.mode == backend.Exclusive || other.mode == backend.Exclusive {
			return false
		}
	}
	return true
}

func (m *model) drop(list *[]*Waiter[int], i int) *Waiter[int] {
	w := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return w
}

// Random entries, exits and cancellations leave a queue and its model with the
// same goroutines inside and waiting.
func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var g Queue[int]
		var m model
		for step := range 300 {
			switch k := rnd.IntN(10); {
			case k < 5:
				w := NewWaiter(0, backend.Mode(1+rnd.IntN(2)), false, true)
				if in := g.TryEnter(w.mode); in {
					w.state = admitted
				} else if rnd.IntN(4) == 0 {
					break // a try that fails leaves nothing
				} else {
					g.Join(w)
				}
				m.queue = append(m.queue, w)
			case k < 8 && len(m.inside) > 0:
				if w := m.drop(&m.inside, rnd.IntN(len(m.inside))); rnd.IntN(2) == 0 {
					g.Withdraw(w) // it left just when it was let in
				} else {
					g.Leave(w.mode)
				}
			case k == 8 && len(m.queue) > 0:
				g.Withdraw(m.drop(&m.queue, rnd.IntN(len(m.queue))))
			case k == 9 && len(m.inside) == 1 && m.inside[0].mode == backend.Exclusive:
				m.inside[0].mode = backend.Shared
				g.Downgrade()
			}
			m.admit()
			compare(t, &g, &m, seed, step)
		}
	}
}

func compare(t *testing.T, g *Queue[int], m *model, seed uint64, step int) {
	t.Helper()
	for _, w := range m.inside {
		if w.state != admitted {
			t.Fatalf("seed %d step %d: a waiter should be inside", seed, step)
		}
	}
	w, before := g.first, (*Waiter[int])(nil)
	for i, want := range m.queue {
		if w != want || w.before != before || want.state != waiting {
			t.Fatalf("seed %d step %d: place %d of the queue differs", seed, step, i)
		}
		w, before = w.next, w
	}
	if w != nil || g.last != before {
		t.Fatalf("seed %d step %d: the queue does not end with its last waiter", seed, step)
	}
	if g.Len() != len(m.queue) || g.IsIdle() != (len(m.inside)+len(m.queue) == 0) {
		t.Fatalf("seed %d step %d: the queue keeps somebody", seed, step)
	}
}
