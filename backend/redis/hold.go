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

// A holdState is what the backend keeps of one hold.
type holdState struct {
	id   string
	hold *backend.Hold

	token    int64         // under which the hold was granted
	us       int64         // the server's time then, or later
	received time.Duration // since epoch: when that was known here, or later
	expiry   atomic.Int64  // ms: the last one that the server has told
	used     atomic.Uint64 // the last token of Transfer; 0: none
	end      atomic.Int64  // ns since epoch: when the lease is over for its holder

	doubted  atomic.Bool // a request about the hold may still be under way
	shared   atomic.Bool // the server may have a shared hold
	unwanted atomic.Bool // nobody waits, and a message will tell if somebody does
}

// newHoldState returns the state of h, which has been granted by g.
func (c *acquisition) newHoldState(h *backend.Hold, g grant) *holdState {
	s := &holdState{
		id: c.id, hold: h,
		token: g.token, us: g.us, received: time.Since(epoch),
	}
	s.expiry.Store(g.expiry)
	s.setLease(g.sent, believed(g.lease(), h.TTL))
	s.doubted.Store(c.doubt)
	s.unwanted.Store(c.channel.status() == working && g.waiting == 0 && !g.byMessage)
	s.shared.Store(c.Mode == backend.Shared)
	return s
}

func stateOf(h *backend.Hold) *holdState { return h.State.(*holdState) }

func (s *holdState) key() key { return lockKey(s.hold.Name) }

// setLease notes what the server has proven. A release of a hold that has run out may be
// under way meanwhile, so it looks here and not at the hold.
func (s *holdState) setLease(sent time.Time, granted time.Duration) {
	s.end.Store(int64(sent.Add(granted - backend.Margin(granted)).Sub(epoch)))
}

func (s *holdState) leaseEnd() time.Time { return epoch.Add(time.Duration(s.end.Load())) }

// wanted tells the observer that somebody waits.
func (s *holdState) wanted() {
	s.unwanted.Store(false)
	s.hold.Wanted()
}

// raise has the next token of Transfer be greater than token.
func (s *holdState) raise(token uint64) {
	for {
		last := s.used.Load()
		if last >= token || s.used.CompareAndSwap(last, token) {
			return
		}
	}
}

// Transfer implements backend.Transferer.
func (b *Backend) Transfer(h *backend.Hold) (token uint64, ok bool) {
	s := stateOf(h)
	if h.Fixed || s.shared.Load() {
		return 0, false
	}
	return s.nextToken(time.Now())
}

// nextToken gives out the token after the last one. The server's tokens are never
// behind its clock, so those below the end of the lease are reserved: who comes
// after it gets a higher one. They stay behind what the server's clock must
// show by now, too: should it lose its data, nobody waits for that end.
func (s *holdState) nextToken(now time.Time) (token uint64, ok bool) {
	for {
		last := s.used.Load()
		next := max(last, uint64(s.token)) + 1
		elapsed := float64((now.Sub(epoch) - s.received).Microseconds()) * (1 - drift)
		if next >= uint64(s.expiry.Load())*1000 || next > uint64(s.us)+uint64(max(elapsed, 0)) {
			return 0, false
		}
		if s.used.CompareAndSwap(last, next) {
			return next, true
		}
	}
}
