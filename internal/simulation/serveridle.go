package simulation

import (
	"math/rand/v2"
	"time"
)

// A server may end connections on which nothing has come for a time, but for subscriptions: the setting
// timeout of Redis. The client library finds that out by what it sends next, as it does where there is TLS.

// ends draws after what time servers of a part of the plans do.
func (g *generator) ends() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 211))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || !g.often(12) {
		return
	}
	p.Ends = pick(g.draw, time.Second, 5*time.Second, 20*time.Second)
	if p.isLonger() {
		p.Ends = time.Minute
	}
}

// endsIdle has the server end l once nothing has come on it for some time.
func (l *link) endsIdle(after time.Duration) {
	if after == 0 || l.way.pair.server < 0 { // Sentinels have no such setting
		return
	}
	var look func()
	look = func() {
		l.way.net.mu.Lock()
		rest := after - time.Since(later(l.written, l.dialed[1]))
		exempt := l.subscribed || l.quick
		l.way.net.mu.Unlock()
		switch {
		case !l.isOpen():
		case exempt:
			time.AfterFunc(after, look)
		case rest > 0:
			time.AfterFunc(rest, look)
		default:
			l.server.hangUp()
		}
	}
	time.AfterFunc(after, look)
}

// findsEnded reports whether a call may find that a server has ended the connection that it asks on: Examine asks by
// commands that are not repeated.
func (r *register) findsEnded(c *call) bool { return c.what == "examine" && r.w.plan.Ends > 0 }
