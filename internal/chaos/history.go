package chaos

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const never = math.MaxInt64

// A History is all that is known of a run.
type History struct {
	Traces []Trace
	Faults []Injected
	Writes []Write // that the store accepted, in its order

	// Patience is how long a process may not run before its own clock no
	// longer protects it: part of the margin.
	Patience int64

	// Lease is how long the server keeps the lock of who is gone, in ns.
	Lease int64

	// Several and Queues are those of the Subject. Where a majority decides, a
	// server that has not heard of an unlock may call the lock held until it
	// hears or the lease is over.
	Several, Queues bool
}

// An Injected fault is one that happened.
type Injected struct {
	Fault    string // its ID
	Name     string
	Span     Span          // until it was healed
	Healthy  int64         // when every worker had made progress
	Recovery time.Duration // how long that took
	Forgets  bool          // the server may have forgotten who holds a lock
}

// A hold is one call as its worker saw it. Times are never where something has
// not happened.
type hold struct {
	worker, call int
	key          string
	shared, try  bool
	under        int
	asked        int64
	granted      int64
	failed       int64
	failure      Class
	text         string
	token        uint64
	unlocking    int64
	unlocked     int64
	unlockErr    Class
	lost         int64
	wrote        bool
	seen         int64
	ended        int64 // the worker's end by force
}

// held says whether the lock was granted.
func (h *hold) held() bool { return h.granted != never }

// until is when the worker stopped believing that it holds the lock.
func (h *hold) until() int64 { return min(h.unlocking, h.lost, h.ended) }

// kept says that the lock was the worker's until it gave it back, on the word
// of the server: whatever had happened to the process meanwhile.
func (h *hold) kept() bool { return h.held() && h.unlocked != never && h.unlockErr == "" }

// calls returns what became of every call.
func (t *Trace) calls() []*hold {
	byID := make(map[int]*hold)
	var all []*hold
	for _, e := range t.Events {
		h := byID[e.Call]
		if e.Kind == Asked {
			h = &hold{
				worker: t.Worker, call: e.Call, key: e.Key, shared: e.Shared, try: e.Try, under: e.Under,
				asked: e.At, granted: never, failed: never, unlocking: never, unlocked: never, lost: never,
				ended: cmp.Or(t.Ended, never),
			}
			byID[e.Call] = h
			all = append(all, h)
		}
		if h != nil {
			h.note(e)
		}
	}
	return all
}

func (h *hold) note(e Event) {
	switch e.Kind {
	case Granted:
		h.granted, h.token = e.At, e.Token
	case Failed:
		h.failed, h.failure, h.text = e.At, e.Err, e.Text
	case Wrote:
		h.wrote, h.seen = true, e.Seen
	case Unlocking:
		h.unlocking = e.At
	case Unlocked:
		h.unlocked, h.unlockErr, h.text = e.At, e.Err, e.Text
	case Lost:
		h.lost = e.At
	}
}

// stalls are the times in which the worker did not run.
func (t *Trace) stalls() []Span {
	spans := slices.Clone(t.Pauses)
	for _, e := range t.Events {
		if e.Kind == Stalled {
			spans = append(spans, Span{e.Seen, e.At})
		}
	}
	return spans
}

// byKey sorts the holds of all workers into keys. Within one, they come in the
// order of their grants.
func (h *History) byKey() map[string][]*hold {
	keys := make(map[string][]*hold)
	for i := range h.Traces {
		for _, c := range h.Traces[i].calls() {
			keys[c.key] = append(keys[c.key], c)
		}
	}
	for _, calls := range keys {
		slices.SortStableFunc(calls, func(a, b *hold) int { return cmp.Compare(a.granted, b.granted) })
	}
	return keys
}

// asleep says whether worker n did not run for longer than its margin covers,
// at some time between from and to.
func (h *History) asleep(n int, from, to int64) bool {
	for i := range h.Traces {
		if h.Traces[i].Worker != n {
			continue
		}
		for _, s := range h.Traces[i].stalls() {
			end := cmp.Or(s.To, never)
			if s.From < to && end > from && end-s.From > h.Patience {
				return true
			}
		}
	}
	return false
}

// forgot says whether the server may have forgotten, between from and to, who
// holds a lock.
func (h *History) forgot(from, to int64) bool {
	return slices.ContainsFunc(h.Faults, func(f Injected) bool {
		return f.Forgets && f.Span.From < to && cmp.Or(f.Healthy, f.Span.To, never) > from
	})
}

// Operations counts the calls that were answered, and the answers to unlocks.
func (h *History) Operations() (n int) {
	for i := range h.Traces {
		for _, e := range h.Traces[i].Events {
			switch e.Kind {
			case Granted, Failed, Unlocked:
				n++
			}
		}
	}
	return n
}
