package simulation

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A tearing is how many connections end in the midst of what is sent on them, within a time.
type tearing struct {
	until [2]time.Time // by direction
	left  int
}

// several is how many bytes several requests, or answers, have at least: those are torn rather
// than one.
var several = [2]int{500, 100}

// mostTorn is how many connections of a way are torn at most.
const mostTorn = 3

// tear has connections end in the midst of what is sent on them.
func (w *way) tear(f Fault, end time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.torn.left = 1 + w.net.rnd.IntN(mostTorn)
	for _, d := range []direction{up, down} {
		if f.goes(d) {
			w.torn.until[d] = end
		}
	}
}

// tears returns how much of what is written to l arrives, and reports whether nothing does
// after that.
func (l *link) tears(d direction, b []byte) (int, bool) {
	l.way.net.mu.Lock()
	defer l.way.net.mu.Unlock()
	t := &l.way.torn
	if l.quick || t.left == 0 || len(b) < 2 || !time.Now().Before(t.until[d]) {
		return len(b), false
	}
	if len(b) < several[d] && l.way.net.rnd.IntN(3) > 0 {
		return len(b), false
	}
	t.left--
	l.lost = [2]bool{true, true}
	return 1 + l.way.net.rnd.IntN(len(b)-1), true
}

// breaks ends l for both sides, once everything has arrived that does.
func (l *link) breaks(at time.Time) {
	outside(func() {
		time.AfterFunc(time.Until(at)+time.Microsecond, func() {
			l.client.in.fail(errReset)
			l.server.in.fail(errReset)
		})
	})
}

// connection draws trouble with some of the connections of a client.
func (g *generator) connection(f *Fault) {
	f.Kind = pick(g.draw, "stall-subscription", "late-subscription", "late-subscription",
		"stall-requests", "stall-one", "stall-one", "kill-subscription", "kill-requests", "kill-one")
	if f.Kind == "late-subscription" {
		f.Size = min(pick(g.draw, g.within(0, time.Second), g.within(0, g.plan.TTL)), longest)
	}
}

// isOpen reports whether neither side has heard of an end.
func (l *link) isOpen() bool {
	for _, p := range []*pipe{l.client.in, l.server.in} {
		p.mu.Lock()
		over := p.err != nil || p.closed || p.unread
		p.mu.Unlock()
		if over {
			return false
		}
	}
	return true
}

// chosen are the open connections of a way that a fault is about: the subscriptions, the
// others, or the one of these that was used last.
func (w *way) chosen(f Fault) []*link {
	w.net.mu.Lock()
	all := w.open()
	subscribed, written := make(map[*link]bool), make(map[*link]time.Time)
	for _, l := range all {
		subscribed[l], written[l] = l.subscribed, l.written
		if l.quick { // its client must not have to wait
			delete(written, l)
		}
	}
	w.net.mu.Unlock()
	about := strings.HasSuffix(f.Kind, "-subscription")
	all = slices.DeleteFunc(all, func(l *link) bool {
		_, may := written[l]
		return !may || subscribed[l] != about || !l.isOpen()
	})
	slices.SortFunc(all, func(a, b *link) int { return cmp.Or(written[b].Compare(written[a]), a.number-b.number) })
	if strings.HasSuffix(f.Kind, "-one") {
		all = all[:min(1, len(all))]
	}
	return all
}

// stall has nothing come through on some connections for a time, or all later by a fixed time.
func (w *way) stall(f Fault, end time.Time) {
	chosen := w.chosen(f)
	each := func(change func(l *link, d direction)) {
		w.change(func() {
			for _, l := range chosen {
				for _, d := range []direction{up, down} {
					if f.goes(d) {
						change(l, d)
					}
				}
			}
		})
	}
	if f.Kind != "late-subscription" {
		each(func(l *link, d direction) { l.held[d] = end })
		return
	}
	each(func(l *link, d direction) { l.extra[d] += f.Size })
	time.AfterFunc(f.For, func() { each(func(l *link, d direction) { l.extra[d] -= f.Size }) })
}

func (l *link) lateness(d direction) time.Duration {
	l.way.net.mu.Lock()
	defer l.way.net.mu.Unlock()
	return l.extra[d]
}

func (l *link) stalled(d direction) time.Time {
	l.way.net.mu.Lock()
	defer l.way.net.mu.Unlock()
	return l.held[d]
}
