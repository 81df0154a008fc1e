package protocol

import (
	"container/heap"
	"math/rand/v2"
)

// Times are in microseconds.
const (
	millisecond = 1000
	second      = 1000 * millisecond
)

// A sim runs events in the order of their times.
type sim struct {
	now    int64
	rng    *rand.Rand
	events events
	count  int
}

func newSim(seed uint64) sim { return sim{rng: rand.New(rand.NewPCG(seed, 0))} }

type event struct {
	at    int64
	order int // of those at one time
	do    func()
}

// after runs do in d.
func (s *sim) after(d int64, do func()) {
	s.count++
	heap.Push(&s.events, event{s.now + max(d, 0), s.count, do})
}

// next runs the next event before end, and reports whether there was one. At
// its time, but before it, look is called.
func (s *sim) next(end int64, look func()) bool {
	if len(s.events) == 0 || s.events[0].at >= end {
		s.now = end
		return false
	}
	e := heap.Pop(&s.events).(event)
	s.now = e.at
	look()
	e.do()
	return true
}

func (s *sim) chance(p float64) bool { return s.rng.Float64() < p }

// upTo returns a time below d.
func (s *sim) upTo(d int64) int64 { return s.rng.Int64N(max(d, 1)) }

type events []event

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }

func (q events) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].order < q[j].order
}

func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
