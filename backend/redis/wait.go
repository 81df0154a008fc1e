package redis

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// subscribing bounds the wait for a subscription before a waiter polls.
const subscribing = 2 * time.Second

// wait parks until something happens, and returns either a hold that a message
// brought or the answer to the next question put to the server.
func (c *call) wait(ctx context.Context, a answer) (*backend.Hold, answer, error) {
	c.rank = rankOf(a)
	c.anchor = anchor{a.sent, a.int(1)}
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
	return nil, next, err
}

// told takes a grant by message.
func (c *call) told(ctx context.Context, g grant) (*backend.Hold, answer, error) {
	h, err := c.accept(ctx, g)
	if h != nil || err != nil {
		return h, answer{}, err
	}
	a, err := c.startOver(ctx)
	return nil, a, err
}

// pause is how long to wait for a message before asking. The head of the queue
// asks when the holder's lease runs out: nobody tells it.
func (c *call) pause(a answer) time.Duration {
	position, pause := a.int(3), time.Duration(a.int(4))*time.Millisecond
	switch {
	case c.polls:
		// A grant that nobody tells of must not run out between two questions.
		return backend.Jitter(min(c.b.poll, c.TTL/3, unattended/3))
	case position == 0:
		return pause
	}
	return backend.Jitter(pause)
}

// comeBack joins the queue again after it has lost its entry, at its old
// place. The usual reason is that nobody heard its grant: the connection of
// the subscription is dead and does not know it.
func (c *call) comeBack(ctx context.Context) (answer, error) {
	if !c.polls {
		c.sub = c.b.hub.subscription(c.at, c.sub)
		c.polls = !c.sub.works(ctx, c.b.closing, subscribing)
	}
	return c.enter(ctx)
}
