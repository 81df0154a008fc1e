package redis

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// subscribeTimeout bounds the wait for a subscription before a waiter polls.
	subscribeTimeout = 2 * time.Second

	// leastPause is the shortest pause that a server asks for, except at the end of a lease.
	leastPause = 5 * time.Second

	// overdue is how much later than an answer the message of a grant may come.
	overdue = 500 * time.Millisecond

	// maxMoves is after how many subscriptions in vain a waiter polls for pollAfter:
	// messages may go another way than requests, through some proxies.
	maxMoves  = 8
	pollAfter = 30 * time.Second
)

// awaitGrant waits until something happens, and returns either a grant that a message
// brought or the answer to the next question put to the server.
func (c *acquisition) awaitGrant(ctx context.Context, a answer) (grant, answer, error) {
	c.rank = rankOf(a)
	c.queuedAt = moment{a.sent, a.int(1)}
	switch {
	case c.polls && c.canSubscribe():
		next, err := c.enterQueue(ctx)
		return grant{}, next, err
	case !c.polls && a.int(5) == 0:
		next, err := c.moveSubscription(ctx)
		return grant{}, next, err
	}
	c.moves.Reset()
	c.moved = 0
	t := time.NewTimer(c.pollInterval(a))
	defer t.Stop()
	select {
	case g := <-c.waiter.grants:
		if c.isPlausible(g) {
			return g, a, nil
		}
	case <-c.waiter.wakeUps:
	case <-t.C:
	case <-ctx.Done():
	}
	if ended := c.ended(ctx); ended != nil {
		return grant{}, a, ended
	}
	next, err := c.ask(ctx, "p")
	if err == nil && c.hasMissed(next) {
		c.b.listener.subscribe(c.told, c.channel)
	}
	return grant{}, next, err
}

// pollInterval is how long to wait for a message before asking. The head of the queue
// asks when the holder's lease runs out: nobody tells it.
func (c *acquisition) pollInterval(a answer) time.Duration {
	position, pause := max(a.int(3), 0), a.millis(4)
	switch waited := time.Duration(a.int(1)-a.int(2)) * time.Microsecond; {
	case c.polls:
		// A grant that nobody tells of must not run out between two questions. Who is
		// further back in the queue asks more rarely, or a long one would cost too much.
		return backend.Jitter(min(c.b.poll*time.Duration(min(position, 1000)+1), c.TTL/3, unconfirmed/3))
	case pause < leastPause, waited < pause:
		return pause // the end of a lease; or the wait may well end before the first question
	}
	return inStep(time.Since(epoch), pause, c.ID.Seq)
}

// inStep shortens a pause that begins at now, so that the waiters of a client ask at the
// same moments, whenever they came: a hundred together, whose requests share pipelines,
// and the next hundred a moment later, so that many hold up nobody else. now may be
// negative: virtual time does not begin with the process.
func inStep(now, pause time.Duration, seq uint64) time.Duration {
	const spread = 50 // moments
	moment := time.Duration(seq/100%spread) * 10 * time.Millisecond
	return pause - ((now-moment)%pause+pause)%pause
}

// hasMissed reports that an answer tells of a grant whose message should have come: the
// subscription lives, as far as the server knows, and nothing comes through.
func (c *acquisition) hasMissed(a answer) bool {
	if c.polls || c.status(a) != "GRANTED" || len(c.waiter.grants) > 0 {
		return false
	}
	return min(c.TTL, unconfirmed)-c.grantOf(a).lease() > overdue
}

// canSubscribe reports whether an acquisition that has had to poll can be told by now.
func (c *acquisition) canSubscribe() bool {
	if c.b.listener.pollOnly || time.Now().Before(c.pollUntil) {
		return false
	}
	c.channel = c.b.listener.subscribe(c.told, nil)
	c.polls = c.channel.status() != working
	return !c.polls
}

// moveSubscription subscribes anew and asks again. The subscription is on another node than
// the one that was asked, mostly after a failover, so no grant would be heard of. As long as
// the client does not know the new node, it may subscribe on the old one once more.
func (c *acquisition) moveSubscription(ctx context.Context) (answer, error) {
	backend.Sleep(ctx, c.moves.Next())
	if c.moved++; c.moved%maxMoves == 0 {
		c.polls, c.pollUntil = true, time.Now().Add(pollAfter)
	}
	c.resubscribe(ctx)
	if c.polls {
		return c.enterQueue(ctx)
	}
	return c.ask(ctx, "p")
}

// resubscribe has another subscription take the place of the one that is of no use.
func (c *acquisition) resubscribe(ctx context.Context) {
	if c.polls {
		return
	}
	c.channel = c.b.listener.subscribe(c.told, c.channel)
	c.polls = !c.channel.works(ctx, subscribeTimeout)
}
