package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// A Violation is a promise that a history breaks.
type Violation struct {
	Rule string // I1 to I10 of the list of promises
	Key  string
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s %s: %s", v.Rule, v.Key, v.Text) }

// A checker collects what is wrong with one history.
type checker struct {
	*History
	found []Violation
}

func (c *checker) wrong(rule, key, format string, args ...any) {
	c.found = append(c.found, Violation{rule, key, fmt.Sprintf(format, args...)})
}

// Check returns every promise that h breaks.
func (h *History) Check() []Violation {
	c := &checker{History: h}
	c.store()
	keys := h.byKey()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		calls := keys[key]
		c.ends(key, calls)
		c.errors(key, calls)
		outer := slices.DeleteFunc(slices.Clone(calls), func(h *hold) bool { return h.under != 0 || !h.held() })
		c.overlap(key, outer)
		c.tokens(key, outer)
		c.updates(key, outer)
		c.entries(key, calls)
	}
	c.closes()
	return c.found
}

// store checks that no write of an older grant came after one of a newer, and
// that what was read and written under the lock lost no update.
func (c *checker) store() {
	last := make(map[string]Write)
	for _, w := range c.Writes {
		before := last[w.Key]
		if w.Token < before.Token {
			c.wrong("I1", w.Key, "the store took token %d after %d", w.Token, before.Token)
		}
		if w.Value != before.Value+1 {
			c.wrong("I1", w.Key, "with token %d came %d after %d", w.Token, w.Value, before.Value)
		}
		last[w.Key] = w
	}
}

// ends checks that every call of a worker that lived on was answered.
func (c *checker) ends(key string, calls []*hold) {
	for _, h := range calls {
		switch {
		case h.ended != never:
		case h.granted == never && h.failed == never:
			c.wrong("I6", key, "call %v never ended", h)
		case h.held() && h.unlocked == never:
			c.wrong("I6", key, "the unlock of %v never ended", h)
		}
	}
}

// errors checks that each error is one that can come of a fault, and that a lock
// that was called held was.
func (c *checker) errors(key string, calls []*hold) {
	for _, h := range calls {
		if h.failure == Wrong || h.unlockErr == Wrong || h.unlockErr == Held {
			c.wrong("I7", key, "%v: %s", h, h.text)
		}
		queued := c.Queues && !h.try // when it gave up
		if h.failure == Held && !queued && !slices.ContainsFunc(calls, func(x *hold) bool { return c.mayBlock(x, h) }) {
			c.wrong("I7", key, "%v says held, and nobody had it or waited for it", h)
		}
	}
}

// mayBlock says whether x can have stood in the way of h.
func (c *checker) mayBlock(x, h *hold) bool {
	return x != h && x.asked < h.failed && c.gone(x) > h.asked
}

// gone is when the server has forgotten x at the latest.
func (c *checker) gone(x *hold) int64 {
	switch {
	case x.kept() && !c.Several:
		return x.unlocked
	case x.failure == Held && x.try:
		return x.failed // left nothing behind
	}
	end := min(x.until(), x.failed)
	if end == never {
		return never
	}
	end += 2 * c.Lease
	for _, f := range c.Faults { // which keep a clean-up from reaching the server
		if f.Span.From < end && cmp.Or(f.Healthy, never) > end-2*c.Lease {
			end = max(end, cmp.Or(f.Healthy, never-2*c.Lease)+2*c.Lease)
		}
	}
	return end
}

// overlap checks that nobody believed to hold the lock beside somebody else.
// Calls come in the order of their grants.
func (c *checker) overlap(key string, holds []*hold) {
	var inside []*hold
	for _, b := range holds {
		inside = slices.DeleteFunc(inside, func(a *hold) bool { return max(a.until(), a.granted) <= b.granted })
		for _, a := range inside {
			if !(a.shared && b.shared) && !c.excused(a, b) {
				c.wrong("I3", key, "%v got the lock %d µs before %v had stopped believing in it", b, (a.until()-b.granted)/1000, a)
			}
		}
		inside = append(inside, b)
	}
}

// excused says whether a, who still believed when b was granted the lock, could
// not know better. Who gave the lock back with the server's consent had it to
// the end, and nothing excuses another.
func (c *checker) excused(a, b *hold) bool {
	if c.forgot(a.asked, b.granted) || c.asleep(b.worker, b.asked, b.granted) {
		return true
	}
	return !a.kept() && c.asleep(a.worker, a.asked, a.until())
}

// tokens checks that tokens grew from each hold to each that was asked for or
// granted later. Readers are compared with writers only.
func (c *checker) tokens(key string, holds []*hold) {
	seen := make(map[uint64]*hold)
	for _, h := range holds {
		if h.token == 0 {
			c.wrong("I2", key, "%v has no token", h)
		}
		if a := seen[h.token]; a != nil && !(a.shared && h.shared) {
			c.wrong("I2", key, "%v and %v have one token", a, h)
		}
		seen[h.token] = h
	}
	c.growing(key, holds, granted, asked)
	kept := slices.DeleteFunc(slices.Clone(holds), func(h *hold) bool { return !h.kept() })
	c.growing(key, kept, unlocking, granted)
}

func asked(h *hold) int64     { return h.asked }
func granted(h *hold) int64   { return h.granted }
func unlocking(h *hold) int64 { return h.unlocking }

// growing checks that each hold has a greater token than all those whose time
// to was before its own time from.
func (c *checker) growing(key string, holds []*hold, to, from func(*hold) int64) {
	before, after := sortedBy(holds, to), sortedBy(holds, from)
	var writer, any *hold // with the greatest token so far
	for _, b := range after {
		for ; len(before) > 0 && to(before[0]) < from(b); before = before[1:] {
			any = greater(any, before[0])
			if !before[0].shared {
				writer = greater(writer, before[0])
			}
		}
		a := any
		if b.shared {
			a = writer
		}
		if a != nil && a.token >= b.token && !c.stale(b, holds) {
			c.wrong("I2", key, "%v came after %v", b, a)
		}
	}
}

// stale says whether b has a lock that the server had given to another meanwhile, which
// nobody could know: it had forgotten the hold while its grant was on the way, or that of
// another goroutine which passed it on to b. Such a b comes after one with a greater token:
// its writes are refused.
func (h *History) stale(b *hold, holds []*hold) bool {
	fromOwn := slices.ContainsFunc(holds, func(x *hold) bool { return x.passedTo(b) })
	return slices.ContainsFunc(holds, func(a *hold) bool {
		onItsWay := b.asked < a.granted && h.forgot(b.asked, b.granted)
		return a.token >= b.token && a.granted < b.granted && (onItsWay || fromOwn && h.forgot(a.asked, b.granted))
	})
}

// passedTo says whether b may have its lock from a, of the same client, without
// a word from the server.
func (a *hold) passedTo(b *hold) bool { return a.worker == b.worker && a.token == b.token-1 }

func sortedBy(holds []*hold, at func(*hold) int64) []*hold {
	return slices.SortedFunc(slices.Values(holds), func(a, b *hold) int { return cmp.Compare(at(a), at(b)) })
}

func greater(a, b *hold) *hold {
	if a == nil || b.token > a.token {
		return b
	}
	return a
}

// updates checks that no number that a holder wrote without a fence was written
// over by one who had not seen it.
func (c *checker) updates(key string, holds []*hold) {
	var last *hold
	for _, b := range holds {
		if !b.wrote {
			continue
		}
		if a := last; a != nil && b.seen <= a.seen {
			late := c.asleep(a.worker, a.asked, b.granted) || c.asleep(b.worker, b.asked, b.until())
			if !late && !c.forgot(a.asked, b.granted) {
				c.wrong("I3", key, "%v read %d and wrote over the work of %v, which had read %d", b, b.seen, a, a.seen)
			}
		}
		last = b
	}
}

// entries checks that whoever enters a lock again has the token of the first
// entry.
func (c *checker) entries(key string, calls []*hold) {
	type id struct{ worker, call int }
	byID := make(map[id]*hold)
	for _, h := range calls {
		byID[id{h.worker, h.call}] = h
	}
	for _, h := range calls {
		if outer := byID[id{h.worker, h.under}]; h.under != 0 && h.held() && h.token != outer.token {
			c.wrong("I2", key, "%v entered %v with another token", h, outer)
		}
	}
}

// closes checks that every client closed in good order.
func (c *checker) closes() {
	for i := range c.Traces {
		t := &c.Traces[i]
		if n := len(t.Events); t.Ended == 0 && (n == 0 || t.Events[n-1].Kind != Finished || t.Events[n-1].Err != "") {
			c.wrong("I9", "", "worker %d did not close its client in good order", t.Worker)
		}
	}
}

func (h *hold) String() string {
	mode := "exclusive"
	if h.shared {
		mode = "shared"
	}
	return fmt.Sprintf("%s call %d/%d (token %d)", mode, h.worker, h.call, h.token)
}
