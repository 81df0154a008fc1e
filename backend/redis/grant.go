package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var errTooLate = errors.New("the server took longer to answer than the lease lasts")

// A grant is what the server said when it let an id in.
type grant struct {
	id        string
	token     int64
	us        int64 // the server's time then
	expiry    int64 // ms
	waiting   int64
	sent      time.Time // a time by our clock, no later than us
	byMessage bool      // it may be old
}

// lease is how long the server keeps the hold from us on.
func (g grant) lease() time.Duration { return between(g.us, g.expiry) }

// believed is what a holder counts on of a lease. A server whose clock has gone back keeps a hold
// for longer than its TTL, but no longer so once its clock is right again, and nobody tells the
// holder of that.
func believed(lease, ttl time.Duration) time.Duration { return min(lease, ttl) }

func (c *acquisition) grantOf(a answer) grant {
	if a.plain {
		c.b.free.add(c.key)
		return grant{
			id: c.id, us: a.number, token: a.number, expiry: a.number/1000 + millis(c.TTL),
			sent: a.sent,
		}
	}
	return grant{id: c.id, us: a.int(1), token: a.int(2), expiry: a.int(3), waiting: a.int(4), sent: a.sent}
}

// parseGrant reads "id token µs expiry waiting key".
func parseGrant(payload string) (k key, g grant, ok bool) {
	rest, name, _ := cutLast(payload, ' ')
	var n [4]int64
	for i := len(n) - 1; i >= 0; i-- {
		var field string
		rest, field, _ = cutLast(rest, ' ')
		v, err := strconv.ParseUint(field, 10, 53) // as exact as a script is
		if err != nil {
			return "", g, false
		}
		n[i] = int64(v)
	}
	g = grant{id: rest, token: n[0], us: n[1], expiry: n[2], waiting: n[3], byMessage: true}
	return key(name), g, rest != "" && strings.HasPrefix(name, prefix+"{")
}

// isPlausible reports whether a script can have sent g. Whoever hears the message of a
// grant can send another one of the same id.
func (c *acquisition) isPlausible(g grant) bool {
	const ahead = defaultKeep + backend.TokenLead
	return g.lease() <= min(c.TTL, unconfirmed)+time.Millisecond && g.token-g.us <= ahead.Microseconds()
}

// accept makes a hold of a grant. It returns nil if that ran out before it
// could be used. A request that was sent twice may be granted twice, the second
// time after the first grant has run out: what a message says is then no proof.
func (c *acquisition) accept(ctx context.Context, g grant) (*backend.Hold, error) {
	if !c.isCredible(g) {
		return nil, fail(errAhead)
	}
	d := believed(g.lease(), c.TTL)
	full := c.isFull(g)
	if !c.isTimely(&g) || c.Fixed && !full || g.byMessage && (c.doubt || c.b.replicas > 0) {
		ok, err := c.confirm(ctx, &g)
		if err == nil && !ok && c.owed {
			return c.acceptOther(ctx)
		}
		if !ok || err != nil {
			return nil, err
		}
		d, full = believed(g.lease(), c.TTL), true
	}
	if time.Since(g.sent) >= d-backend.Margin(d) {
		return nil, nil // leaveQueue gives it back
	}
	return c.newHold(g, full), nil
}

// acceptOther makes a hold of what the server keeps under the id when the time of a grant is over.
// It may be that grant, prolonged by a request whose answer was lost, or another one of the same
// request, with a token of its own: the server says which.
func (c *acquisition) acceptOther(ctx context.Context) (*backend.Hold, error) {
	a, err := c.ask(ctx, c.mode())
	if err != nil || c.status(a) != "GRANTED" {
		return nil, err
	}
	g := c.grantOf(a)
	switch full := c.isFull(g); {
	case !c.isCredible(g):
		return nil, fail(errAhead)
	case !c.isTimely(&g), c.Fixed && !full:
		return nil, nil // leaveQueue gives it back
	default:
		return c.newHold(g, full), nil
	}
}

// isFull reports whether g lasts for all of the TTL from when the server said so.
func (c *acquisition) isFull(g grant) bool { return g.lease() >= c.TTL-time.Millisecond }

// isTimely reports whether g says by itself when it ends, and leaves time to renew it. A
// message must have come as fast as the clocks can be trusted, or it may be an old one.
// An answer may tell of a grant that is about to run out.
func (c *acquisition) isTimely(g *grant) bool {
	d := g.lease()
	if !g.byMessage {
		left := d - time.Since(g.sent)
		return left > backend.Margin(d) && (c.isFull(*g) || left >= min(c.TTL, unconfirmed)/3)
	}
	delta := time.Duration(g.us-c.queuedAt.us) * time.Microsecond
	since := time.Since(c.queuedAt.sent) - delta
	g.sent = c.queuedAt.sent.Add(delta)
	return delta >= 0 && since >= 0 && since <= backend.Margin(d) && d-since >= d/3
}

// confirm asks the server whether it still keeps the grant, which extends it. What it keeps under
// this id when the grant has run out is another one, with a token of its own: the request was sent
// twice, and granted twice.
func (c *acquisition) confirm(ctx context.Context, g *grant) (bool, error) {
	h, until := &backend.Hold{Request: c.Request}, int64(0)
	h.State = c.newHoldState(h, *g)
	if c.Fixed {
		until = g.us/1000 + millis(c.TTL)
	}
	runsOut := g.expiry
	var pause backend.Backoff
	for {
		a, expiries, err := c.b.extend(ctx, replyTimeout(c.TTL), renewCall([]*backend.Hold{h}, until), 1)
		if err == nil {
			g.sent, g.us, g.expiry = a.sent, a.int(0), expiries[0]
			if g.expiry < 0 {
				g.expiry, g.waiting = -g.expiry, 1
			}
			c.owed = g.expiry > 0
			return c.owed && g.us/1000 < runsOut, nil
		}
		if ended := c.ended(ctx); ended != nil {
			return false, ended
		}
		if isHopeless(err) || isUnacknowledged(err) || !c.Wait {
			return false, fail(err)
		}
		backend.Sleep(ctx, pause.Next())
	}
}

// newHold is what Acquire returns. A hold that is not sure to last its TTL is to be
// renewed soon, but not at once: a critical section of microseconds shall not
// cost a further request.
func (c *acquisition) newHold(g grant, full bool) *backend.Hold {
	tells := c.channel.status() == working
	h := &backend.Hold{
		Request:      c.Request,
		Token:        uint64(g.token),
		Sent:         g.sent,
		Granted:      believed(g.lease(), c.TTL),
		TellsWanted:  tells || !c.Fixed, // who is renewed is told by that as well
		WantedAtOnce: tells,
	}
	s := c.newHoldState(h, g)
	h.State = s
	isWanted, isBroken := c.b.listener.addHold(s)
	if !full {
		h.RenewIn = time.Since(g.sent) + min(100*time.Millisecond, h.Granted/6)
	}
	if g.waiting > 0 || isWanted {
		s.wanted()
	}
	if isBroken {
		h.Lost(backend.ErrBroken)
	}
	return h
}

// startOver goes to the end of the queue after a grant that has run out unused.
// Who must not wait has had its answer.
func (c *acquisition) startOver(ctx context.Context) (answer, error) {
	if ended := c.ended(ctx); ended != nil {
		return answer{}, ended
	}
	if !c.Wait {
		return answer{}, backend.Fail(backend.ErrUnavailable, errTooLate)
	}
	c.rank = ""
	return c.enterQueue(ctx)
}
