package redis

import (
	"context"
	"time"
)

const (
	// near is the round trip, with its deviations, up to which a server is so near
	// that to wake another goroutine costs as much as the request.
	near = 5 * time.Millisecond

	// captive is for how long a caller may be held by a request that it sends itself,
	// though its context has ended, if a server that is near falls silent.
	captive = 30 * time.Millisecond
)

// direct sends a command on its caller's own goroutine, if the server is near and
// nothing else is under way: to wake a sender, and to be woken by it, would cost as
// much as the round trip. It reports false if it has not. A reply that does not come
// in captive does not come at all: the connection ends. So it is for requests about
// free locks, which are made in full if they fail.
func (p *pipeliner) direct(ctx context.Context, limit time.Duration, args []any) (reply any, err error, done bool) {
	s := p.enter()
	if s == nil {
		return nil, nil, false
	}
	c := command{ctx: ctx, args: args}
	bound, cancel := context.WithDeadline(context.WithoutCancel(ctx), s.began.Add(min(limit, captive)))
	defer cancel()
	process(bound, p.client, []*command{&c})
	p.exit(s, c.err)
	return c.reply, c.err, true
}

// enter makes the caller a sender. It returns nil if it is not to send by itself.
func (p *pipeliner) enter() *sender {
	if !p.bounded || p.trip.Limit(0, latest) > near {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.senders) > 0 {
		return nil
	}
	s := &sender{began: time.Now()}
	p.senders, p.used = append(p.senders, s), s.began
	return s
}

// exit has somebody else send what has been queued meanwhile. A reply that has not
// come for so long is a measurement too: the server is near no more, and whoever
// went on to wait in captive for it would end one connection after the other.
func (p *pipeliner) exit(s *sender, err error) {
	took := time.Since(s.began)
	if _, said := replied(err); err == nil || said || took > near {
		p.trip.Observe(took)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(s)
	p.dispatch()
}
