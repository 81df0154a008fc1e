package redis

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// drift is the part by which this machine's clock may be faster than the
// server's.
const drift = 5e-4

// epoch is what times are counted from that have to be small.
var epoch = time.Now()

// What may be known of a hold.
const (
	doubted = 1 << iota // a request about it may still be under way
	shares              // it is shared, or may have become so
	quick               // nobody waits, and who comes to wait will say so
)

// A state is what the backend keeps of one hold. There may be many, so it has no
// text: keys and ids are written anew when they are needed.
type state struct {
	identity

	granted  int64         // the token it was granted under
	us       int64         // the server's time then, or later
	received time.Duration // since epoch: when that was known here, or later
	expiry   atomic.Int64  // ms: the last one that the server has told
	used     atomic.Uint64 // the last token of Transfer; 0: none
	over     atomic.Int64  // ns since epoch: when the lease is over for its holder
	flags    atomic.Uint32 // of those above
}

// lasts notes what the server has proven. A release may be under way meanwhile, of a
// hold that has run out, so it looks here and not at the hold.
func (s *state) lasts(sent time.Time, granted time.Duration) {
	s.over.Store(int64(sent.Add(granted - backend.Margin(granted)).Sub(epoch)))
}

func newState(c *call, g grant) *state {
	s := &state{
		identity: c.as,
		granted:  g.token, us: g.us, received: time.Since(epoch),
	}
	s.expiry.Store(g.expiry)
	s.lasts(g.sent, g.lasts())
	s.note(doubted, c.doubt)
	listens, _ := c.sub.known()
	s.note(quick, listens && g.waiting == 0 && !g.told)
	s.note(shares, c.Mode == backend.Shared)
	return s
}

func (s *state) key() key { return lockKey(s.request.Name) }

func (s *state) is(flag uint32) bool { return s.flags.Load()&flag != 0 }

func (s *state) note(flag uint32, is bool) {
	if is {
		s.flags.Or(flag)
	} else {
		s.flags.And(^flag)
	}
}

func stateOf(h *backend.Hold) *state { return h.State.(*state) }

// raise has the next token of Transfer be greater than token.
func (s *state) raise(token uint64) {
	for {
		last := s.used.Load()
		if last >= token || s.used.CompareAndSwap(last, token) {
			return
		}
	}
}

func (s *state) wanted() {
	s.note(quick, false)
	if o := s.request.Observer; o != nil {
		o.Wanted()
	}
}

// Transfer returns the fencing token under which the exclusive hold h goes on
// for another owner of the same client. It is greater than every token of the
// name so far, and smaller than any that the server will give out later,
// whatever becomes of h. It reports false if there is no such token: the hold
// then has to be released on the server. It may be called while h is being
// renewed, does no I/O and never blocks.
func (b *Backend) Transfer(h *backend.Hold) (token uint64, ok bool) {
	s := stateOf(h)
	if h.Fixed || s.is(shares) {
		return 0, false
	}
	return s.transfer(time.Now())
}

// transfer gives out the token after the last one. The server's tokens are never
// behind its clock, so those below the end of the lease are reserved: who comes
// after it gets a higher one. They stay behind what the server's clock must
// show by now, too: should it lose its data, nobody waits for that end.
func (s *state) transfer(now time.Time) (token uint64, ok bool) {
	for {
		last := s.used.Load()
		next := max(last, uint64(s.granted)) + 1
		elapsed := float64((now.Sub(epoch) - s.received).Microseconds()) * (1 - drift)
		if next >= uint64(s.expiry.Load())*1000 || next > uint64(s.us)+uint64(max(elapsed, 0)) {
			return 0, false
		}
		if s.used.CompareAndSwap(last, next) {
			return next, true
		}
	}
}
