package redis

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// subscribing bounds the wait for a subscription before a waiter polls.
const subscribing = 2 * time.Second

// overdue is how late the message of a grant may be, behind an answer that tells it too.
const overdue = 500 * time.Millisecond

// wait parks until something happens, and returns either a hold that a message
// brought or the answer to the next question put to the server.
func (c *call) wait(ctx context.Context, a answer) (*backend.Hold, answer, error) {
	c.rank = rankOf(a)
	if told := a.int(6); told > 0 {
		c.b.tell(c.key, told)
	}
	c.anchor = anchor{a.sent, a.int(1)}
	switch {
	case c.polls && c.listensAgain():
		next, err := c.enter(ctx)
		return nil, next, err
	case !c.polls && a.int(5) == 0:
		next, err := c.follow(ctx)
		return nil, next, err
	}
	c.moves.Reset()
	c.moved = 0
	t := time.NewTimer(c.pause(a))
	defer t.Stop()
	select {
	case g := <-c.w.grants:
		return c.told(ctx, g)
	case <-c.w.nudges:
	case <-t.C:
	case <-ctx.Done():
		return nil, a, backend.WaitEnded(ctx, true)
	case <-c.b.closing:
		return nil, a, backend.ErrClosed
	}
	next, err := c.ask(ctx, "p")
	if err == nil && c.missed(next) {
		c.b.hub.subscription(c.at, c.sub)
	}
	return nil, next, err
}

// tellings bounds the requests by which the readers of a lock hear that somebody waits:
// a server that has told all of any number does not say that there are more.
const tellings = 512

// tell has the readers of a lock, from a number on, hear in the background that
// somebody waits for it. Whom that does not reach hears with its renewal.
func (b *Backend) tell(k key, told int64) {
	b.janitor.Go(func(ctx context.Context) {
		for range tellings {
			a, err := b.run(ctx, attempt(unattended), tellScript, tellScript.of(k, 2, told))
			if err != nil || a.number <= told {
				return
			}
			told = a.number
		}
	})
}

// missed reports that an answer tells of a grant whose message should have come: the
// subscription lives, as far as the server knows, and nothing comes through.
func (c *call) missed(a answer) bool {
	if c.polls || c.status(a) != "GRANTED" || len(c.w.grants) > 0 {
		return false
	}
	g := c.grantOf(a)
	return min(c.TTL, unattended)-g.lasts() > overdue
}

// listensAgain reports whether a call that has had to poll can be told by now.
func (c *call) listensAgain() bool {
	if c.b.hub.polls || time.Now().Before(c.pollUntil) {
		return false
	}
	c.sub = c.b.hub.subscription(c.at, nil)
	works, _ := c.sub.known()
	c.polls = !works
	return works
}

// told takes a grant by message.
func (c *call) told(ctx context.Context, g grant) (*backend.Hold, answer, error) {
	if !c.plausible(g) {
		a, err := c.ask(ctx, "p")
		return nil, a, err
	}
	h, err := c.accept(ctx, g)
	if h != nil || err != nil {
		return h, answer{}, err
	}
	a, err := c.startOver(ctx)
	return nil, a, err
}

// plausible reports whether a script can have sent g. Whoever hears the message of a
// grant can send another one of the same id.
func (c *call) plausible(g grant) bool {
	const ahead = keep + backend.TokenLead
	return g.lasts() <= min(c.TTL, unattended)+time.Millisecond && g.token-g.us <= ahead.Microseconds()
}

// pause is how long to wait for a message before asking. The head of the queue
// asks when the holder's lease runs out: nobody tells it.
func (c *call) pause(a answer) time.Duration {
	position, pause := max(a.int(3), 0), a.millis(4)
	switch {
	case c.polls:
		// A grant that nobody tells of must not run out between two questions. Who is
		// further back in the queue asks more rarely, or a long one would cost too much.
		return backend.Jitter(min(c.b.poll*time.Duration(min(position, 1000)+1), c.TTL/3, unattended/3))
	case position == 0:
		return pause
	}
	return backend.Jitter(pause)
}

// comeBack joins the queue again after it has lost its entry, at its old
// place. The usual reason is that nobody heard its grant: the connection of
// the subscription is dead and does not know it.
func (c *call) comeBack(ctx context.Context) (answer, error) {
	c.listenAnew(ctx)
	return c.enter(ctx)
}

// maxMoves is after how many subscriptions in vain a waiter polls for pollAfter: messages
// may go another way than requests, through some proxies.
const (
	maxMoves  = 8
	pollAfter = 30 * time.Second
)

// follow has the client subscribe anew and asks again. The node that was asked has
// nobody who would hear of a grant: the subscription is on another one, after a
// failover as a rule, and may find that one again as long as the way is not known.
func (c *call) follow(ctx context.Context) (answer, error) {
	c.b.sleep(ctx, c.moves.Next())
	if c.moved++; c.moved%maxMoves == 0 {
		c.polls, c.pollUntil = true, time.Now().Add(pollAfter)
	}
	c.listenAnew(ctx)
	if c.polls {
		return c.enter(ctx)
	}
	return c.ask(ctx, "p")
}

// listenAnew has another subscription take the place of the one that is of no use.
func (c *call) listenAnew(ctx context.Context) {
	if c.polls {
		return
	}
	c.sub = c.b.hub.subscription(c.at, c.sub)
	c.polls = !c.sub.works(ctx, c.b.closing, subscribing)
}
