package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// patience bounds the tries of a request that has never had an answer.
const patience = 3 * time.Second

// A call is one Acquire under way. It is the business of one goroutine.
type call struct {
	*backend.Request
	ballot *backend.Ballot // nil: this server decides alone
	b      *Backend
	key    key
	at     address

	as       identity // of the present entry into the queue
	id       string   // its text
	entries  int32    // how many ids it has had before
	doubt    bool     // an acquire of id may still be under way
	owed     bool     // the server may have an entry or a hold of id
	answered bool     // the server has said something
	rank     string   // place in the queue; empty: none yet
	anchor   anchor   // when it was last found in the queue
	w        *waiter  // nil if r must not wait

	polls     bool            // no message will come for id
	sub       *subscription   // on which one would; nil: there is none yet
	moves     backend.Backoff // between subscriptions that are of no use
	moved     int             // how many of those there have been, one after another
	pollUntil time.Time       // not to listen before that
}

// An anchor is one moment by two clocks: the server's is not before ours.
type anchor struct {
	sent time.Time
	us   int64
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	return b.acquire(ctx, r, nil)
}

func (b *Backend) acquire(ctx context.Context, r backend.Request, v *backend.Ballot) (*backend.Hold, error) {
	if b.unfit != nil {
		return nil, b.unfit
	}
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	c := b.newCall(lockKey(r.Name), &r, v)
	defer c.end()
	if a, ok := c.grab(ctx); ok {
		return c.take(ctx, a, nil)
	}
	return c.begin(ctx)
}

// newCall returns a call that has asked for nothing yet. It needs an end.
func (b *Backend) newCall(k key, r *backend.Request, v *backend.Ballot) *call {
	c := &call{Request: r, ballot: v, b: b, key: k, at: b.address(k, r.ID.Client)}
	if c.Wait {
		c.w = waiters.Get().(*waiter)
		c.w.at = c.at
	}
	c.sub = b.hub.listening(c.at)
	_, denied := c.sub.known()
	c.polls = denied || b.hub.polls
	c.name()
	return c
}

// end is the last of a call that begin has counted.
func (c *call) end() {
	if c.w != nil {
		c.w.put()
	}
	c.b.calls.Done()
}

// begin asks in full for the lock until it is held or that is hopeless.
func (c *call) begin(ctx context.Context) (*backend.Hold, error) {
	a, err := c.enroll(ctx)
	return c.take(ctx, a, err)
}

// take goes on after the answer to a request, until the lock is held or that is
// hopeless.
func (c *call) take(ctx context.Context, a answer, err error) (*backend.Hold, error) {
	h, err := c.pursue(ctx, a, err)
	if err != nil {
		c.leave()
		return nil, err
	}
	return h, nil
}

func (c *call) pursue(ctx context.Context, a answer, err error) (*backend.Hold, error) {
	for err == nil {
		var h *backend.Hold
		switch c.status(a) {
		case "GRANTED":
			h, err = c.accept(ctx, c.grantOf(a))
		case "QUEUED":
			c.Queued()
			h, a, err = c.wait(ctx, a)
			if h == nil {
				continue
			}
		case "GONE", "DEAD":
			a, err = c.comeBack(ctx)
			continue
		case "HELD":
			return nil, backend.ErrHeld
		default:
			return nil, fail(errGarbled)
		}
		if h != nil || err != nil {
			return h, err
		}
		a, err = c.startOver(ctx)
	}
	return nil, err
}

var errTooLate = errors.New("the server took longer to answer than the lease lasts")

// startOver goes to the end of the queue after a grant that has run out unused.
// Who must not wait has had its answer.
func (c *call) startOver(ctx context.Context) (answer, error) {
	switch {
	case ctx.Err() != nil:
		return answer{}, backend.WaitEnded(ctx, true)
	case c.b.isClosing():
		return answer{}, backend.ErrClosed
	case !c.Wait:
		return answer{}, backend.Fail(backend.ErrUnavailable, errTooLate)
	}
	c.rank = ""
	return c.enter(ctx)
}

// enroll asks in full for the first time. As long as nobody can call this client
// it does not join the queue: a hand-over that reached it there would skip it.
func (c *call) enroll(ctx context.Context) (answer, error) {
	if works, _ := c.sub.known(); !c.Wait || works || c.polls {
		return c.ask(ctx, c.mode())
	}
	a, err := c.ask(ctx, "t")
	if err != nil || a.status() != "HELD" {
		return a, err
	}
	c.sub = c.b.hub.subscription(c.at, nil)
	c.polls = !c.sub.works(ctx, c.b.closing, subscribing)
	switch {
	case ctx.Err() != nil:
		return a, backend.WaitEnded(ctx, true)
	case c.b.isClosing():
		return a, backend.ErrClosed
	}
	return c.enter(ctx)
}

func (c *call) mode() string {
	if c.Wait {
		return "w"
	}
	return "t"
}

// name gives the call a new id.
func (c *call) name() {
	c.as = c.b.ids.identify(c.key, c.Request, c.entries, c.polls, c.ballot)
	c.id = c.as.id()
	c.entries++
	c.doubt, c.owed = false, false
	if c.w != nil {
		c.b.hub.expect(c.ID, c.id, c.w)
	}
}

// enter joins the queue anew, with a new id and the place it had.
func (c *call) enter(ctx context.Context) (answer, error) {
	c.leave()
	c.w.drain() // it was told of the old id
	c.name()
	return c.ask(ctx, c.mode())
}

// leave gives up what the id may have or wait for. The server is told in the
// background if it must be.
func (c *call) leave() {
	c.b.hub.retire(c.ID)
	if c.doubt || c.owed {
		c.b.giveUp(c.key, c.id, c.doubt, c.TTL)
	}
}

// ask sends an acquire and repeats it, with the same id, until it is answered.
func (c *call) ask(ctx context.Context, mode string) (answer, error) {
	began := time.Now()
	var pause backend.Backoff
	for {
		a, err := c.send(ctx, mode)
		if err == nil {
			c.answered = true
			c.Answered()
			return a, nil
		}
		switch {
		case ctx.Err() != nil:
			return a, backend.WaitEnded(ctx, c.answered)
		case c.b.isClosing():
			return a, backend.ErrClosed
		case hopeless(err), unacknowledged(err), a.status() == "NOT_READY", !c.answered && (!passing(err) || time.Since(began) > patience):
			return a, fail(err)
		}
		if !c.b.sleep(ctx, pause.Next()) {
			continue // the next try says why
		}
	}
}

func (c *call) send(ctx context.Context, mode string) (answer, error) {
	s, call := c.request(mode)
	return c.put(ctx, mode, s, call)
}

// put sends a request for the lock once.
func (c *call) put(ctx context.Context, mode string, s *script, call []any) (answer, error) {
	a, err := c.b.run(ctx, attempt(c.TTL), s, call)
	return a, c.note(mode, a, err)
}

// note notes what the server may have of a request that was sent once.
func (c *call) note(mode string, a answer, err error) error {
	status := c.status(a)
	if unacknowledged(err) && status != "GRANTED" {
		err = nil // it counts on nothing yet
	}
	switch {
	case err == nil:
		c.owed = owes(status)
		err = unready(a)
	case !unsent(err):
		_, answered := replied(err)
		c.doubt = c.doubt || !answered && mode != "p"
		c.owed = true
	}
	return err
}

// owes reports whether the server may have something of an id after such a status. What
// cannot be read may be a grant that was garbled on its way.
func owes(status string) bool {
	switch status {
	case "HELD", "GONE", "DEAD", "NOT_READY":
		return false
	}
	return true
}

// attempt is how long to wait for one reply before the request is repeated.
func attempt(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 250*time.Millisecond), 2*time.Second)
}

// A grant is what the server said when it let an id in.
type grant struct {
	id      string
	token   int64
	us      int64 // the server's time then
	expiry  int64 // ms
	waiting int64
	sent    time.Time // what us was not before, by our clock
	told    bool      // by a message: it may be old
}

// status is what the server said of the call. A number is a grant, but for 0.
func (c *call) status(a answer) string {
	switch status := a.status(); {
	case status == "GRANTED" && a.int(2) <= 0: // each has a token
	case status == "QUEUED" && !c.Wait, status == "GONE" && !c.Wait:
	case !a.plain:
		return status
	case a.number > 0:
		return "GRANTED"
	}
	return ""
}

func (c *call) grantOf(a answer) grant {
	if a.plain {
		c.b.free.keep(c.key)
		return grant{
			id: c.id, us: a.number, token: a.number, expiry: a.number/1000 + millis(c.TTL),
			sent: a.sent,
		}
	}
	return grant{id: c.id, us: a.int(1), token: a.int(2), expiry: a.int(3), waiting: a.int(4), sent: a.sent}
}

// lasts is how long the server keeps the hold from us on.
func (g grant) lasts() time.Duration { return lasting(g.us, g.expiry) }

// accept makes a hold of a grant. It returns nil if that ran out before it
// could be used. A request that was sent twice may be granted twice, the second
// time after the first grant has run out: what a message says is then no proof.
func (c *call) accept(ctx context.Context, g grant) (*backend.Hold, error) {
	if !c.isCredible(g) {
		return nil, fail(errAhead)
	}
	d := g.lasts()
	full := d >= c.TTL-time.Millisecond
	if !c.timely(&g) || c.Fixed && !full || g.told && (c.doubt || c.b.replicas > 0) {
		ok, err := c.confirm(ctx, &g)
		if !ok || err != nil {
			return nil, err
		}
		d, full = g.lasts(), true
	}
	if time.Since(g.sent) >= d-backend.Margin(d) {
		return nil, nil // leave gives it back
	}
	return c.hold(g, full), nil
}

// timely reports whether g says by itself when it ends. A message must have
// come as fast as the clocks can be trusted, or it may be an old one.
func (c *call) timely(g *grant) bool {
	d := g.lasts()
	if !g.told {
		return time.Since(g.sent)+backend.Margin(d) < d
	}
	delta := time.Duration(g.us-c.anchor.us) * time.Microsecond
	since := time.Since(c.anchor.sent) - delta
	g.sent = c.anchor.sent.Add(delta)
	return delta >= 0 && since >= 0 && since <= backend.Margin(d) && d-since >= d/3
}

// confirm asks the server whether it still keeps the grant, which extends it.
func (c *call) confirm(ctx context.Context, g *grant) (bool, error) {
	one, till := []renewal{{state: newState(c, *g)}}, int64(0)
	if c.Fixed {
		till = g.us/1000 + millis(c.TTL)
	}
	var pause backend.Backoff
	for {
		a, expiries, err := c.b.renewBatch(ctx, attempt(c.TTL), one, till)
		switch {
		case err == nil:
			g.sent, g.us, g.expiry = a.sent, a.int(0), expiries[0]
			if g.expiry < 0 {
				g.expiry, g.waiting = -g.expiry, 1
			}
			c.owed = g.expiry > 0
			return c.owed, nil
		case ctx.Err() != nil:
			return false, backend.WaitEnded(ctx, true)
		case c.b.isClosing():
			return false, backend.ErrClosed
		case hopeless(err), unacknowledged(err), !c.Wait:
			return false, fail(err)
		}
		c.b.sleep(ctx, pause.Next())
	}
}

// hold is what Acquire returns. One that is not sure to last its TTL is to be
// renewed soon, but not at once: a critical section of microseconds shall not
// cost a further request.
func (c *call) hold(g grant, full bool) *backend.Hold {
	s := newState(c, g)
	tells, _ := c.sub.known()
	h := &backend.Hold{
		Request:      *c.Request,
		Token:        uint64(g.token),
		Sent:         g.sent,
		Granted:      g.lasts(),
		TellsWanted:  tells || !c.Fixed, // who is renewed is told by that as well
		WantedAtOnce: tells,
		State:        s,
	}
	s.request = &h.Request
	c.b.hub.keep(s)
	if !full {
		h.RenewIn = time.Since(g.sent) + min(100*time.Millisecond, h.Granted/6)
	}
	if g.waiting > 0 {
		s.wanted()
	}
	return h
}

func rankOf(a answer) string { return strconv.FormatInt(a.int(2), 10) }
