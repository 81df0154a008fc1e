package quorum_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/quorum"
)

// waitsAt returns once so many wait for x at that node.
func (s nodes) waitsAt(node, number int) {
	for s[node].Waiting("x") != number {
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
}

// A line is clients of a quorum of which all nodes are needed. They wait for x, each once.
type line struct {
	s       nodes
	clients []*client
	waiters *sync.WaitGroup
}

func (s nodes) line(t *testing.T, clients int, waiters *sync.WaitGroup) line {
	l := line{s: s, waiters: waiters}
	for range clients {
		c := s.open(t, &quorum.Options{Need: len(s)})
		c.unlock(c.lock("y")) // it knows how fast the nodes are
		l.clients = append(l.clients, c)
	}
	return l
}

// wait has them queue at the first node, one after the other. Those of number writer and greater write.
func (l line) wait(t *testing.T, writer int) {
	for i, c := range l.clients {
		m := dlock.Locker(c.Mutex("x"))
		if i < writer {
			m = c.RWMutex("x").RLocker()
		}
		l.waiters.Go(func() { ok(t, dlock.Do(t.Context(), m, nothing)) })
		l.s.waitsAt(0, i+1)
	}
}

// moveTo has them queue at that node instead: those before it are away from them for a while.
func (l line) moveTo(node int) {
	for _, c := range l.clients {
		c.cut(node)
		before := l.s[node].Waiting("x")
		l.s.waitsAt(node, before+1)
		c.heal()
	}
	l.s.waitsAt(0, 0)
}

func (s nodes) ops() (n int64) {
	for i := range s {
		n += s[i].Ops()
	}
	return n
}

// Where all nodes are needed, some queue at the second, because the first was away from them when they
// came, and others at the first. When the holder goes, each of both nodes lets one in who needs the
// other. The lock is not left free for that, and nobody asks much more than where all wait at one.
func TestTwoFrontsNeedingAll(t *testing.T) {
	for _, each := range []int{1, 20} {
		in(t, 3, func(t *testing.T, s nodes) {
			var waiters sync.WaitGroup
			a := s.open(t, &quorum.Options{Need: len(s)})
			l := a.lock("x")
			away := s.line(t, each, &waiters)
			away.wait(t, 0)
			away.moveTo(1)
			s.line(t, each, &waiters).wait(t, 0)
			free, before := time.Now(), s.ops()
			a.unlock(l)
			waiters.Wait()
			if took := time.Since(free); took > time.Second {
				t.Errorf("%d at each node: they took %v", each, took)
			}
			if n := s.ops() - before; n > int64(20*each) {
				t.Errorf("%d at each node: they took %d requests", each, n)
			}
			s.empty(t)
		})
	}
}

// A reader and a writer behind it wait at the second node, and others at the third. Each reader has
// the first, and that at which it waited, and stands behind the other's writer at the third that it needs.
func TestReadersAtTwoFrontsNeedingAll(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		var waiters sync.WaitGroup
		a := s.open(t, &quorum.Options{Need: len(s)})
		l := a.lock("x")
		for _, front := range []int{1, 2} {
			line := s.line(t, 2, &waiters)
			line.wait(t, 1)
			line.moveTo(front)
		}
		free := time.Now()
		a.unlock(l)
		waiters.Wait()
		if took := time.Since(free); took > time.Second {
			t.Errorf("they took %v", took)
		}
		s.empty(t)
	})
}
