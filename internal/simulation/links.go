package simulation

import (
	"time"
)

// A tearing is how many connections end in the midst of what is sent on them, within a time.
type tearing struct {
	until [2]time.Time // by direction
	left  int
}

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
	t.left--
	l.lost = [2]bool{true, true}
	return 1 + l.way.net.rnd.IntN(len(b)-1), true
}

// breaks ends l for both sides, once everything has arrived that does.
func (l *link) breaks(at time.Time) {
	time.AfterFunc(time.Until(at)+time.Microsecond, func() {
		l.client.in.fail(errReset)
		l.server.in.fail(errReset)
	})
}
