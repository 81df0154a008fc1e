package simulation

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// A greeting is what a program has its own client do on each connection that it makes (OnConnect): it asks the
// server for something, and for a time it fails, or takes long.
type greeting struct {
	Selects bool `json:",omitempty"` // a database, always
}

func init() {
	further := map[string]touch{
		"greeting":  {fails: true},
		"ungreeted": {loses: true, fails: true}, // of who has to connect anew
	}
	maps.Copy(furtherKinds, further)
	maps.Copy(kinds, further)
	keepsConnections = append(keepsConnections, "greeting")
}

var errGreeting = errors.New("the program does not like the server")

// greetings draws them in a part of the plans, and when they fail, take long, or each in turn. Sentinels are
// greeted with a mutex held, by the same function.
func (g *generator) greetings() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 221))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || p.Sentinels || len(p.Durable) > 0 || p.Fresh || !g.often(7) {
		return
	}
	had := len(p.Faults) > 0
	if had && g.often(40) {
		p.Faults = nil
	}
	for i := range p.Clients {
		c := &p.Clients[i]
		if c.Opens != nil || c.Asks || p.isShared(i) || !g.often(70) {
			continue
		}
		made := c.ownCopy()
		made.Greeting = &greeting{Selects: g.often(70)}
		c.Own = &made
		if !had {
			continue
		}
		for range g.IntN(4) {
			f := Fault{Kind: "greeting", At: g.within(0, p.Length), Client: i, Server: g.IntN(p.Servers), Way: g.IntN(3)}
			f.For, f.Size = g.lasting(), g.within(0, 200*time.Millisecond)
			p.Faults = append(p.Faults, f)
		}
	}
}

// A reception is how a client greets a server. It is guarded by the mutex of the network.
type reception struct {
	fails, slow time.Time // until when it does
	takes       time.Duration
	times       int // that there were so far
}

// reception is that of a client and a place.
func (w *world) reception(client, place int) *reception {
	r := w.receptions[flight{client, place}]
	if r == nil {
		r = new(reception)
		w.receptions[flight{client, place}] = r
	}
	return r
}

// disturbsGreetings has those of a client fail (0), take long (1), or do so in turn (2).
func (w *world) disturbsGreetings(f Fault, end time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	r := w.reception(f.Client, f.Server)
	if f.Way != 1 {
		r.fails = end
	}
	if f.Way != 0 {
		r.slow, r.takes = end, f.Size
	}
}

// greets is what a client does on a connection to a place that it has made; nil: nothing. One for a subscription
// is made with a mutex held, and takes no time.
func (w *world) greets(client, place int) func(context.Context, *goredis.Conn) error {
	own := w.plan.Clients[client].Own
	if own == nil || own.Greeting == nil {
		return nil
	}
	return func(ctx context.Context, c *goredis.Conn) error {
		w.net.mu.Lock()
		r := w.reception(client, place)
		r.times++
		now := time.Now()
		slow, fails, takes := now.Before(r.slow), now.Before(r.fails), r.takes
		if slow && fails { // it does the one, and then the other
			slow, fails = r.times%2 == 0, r.times%2 != 0
		}
		w.net.mu.Unlock()
		if slow && !isSubscription() {
			if err := sleep(ctx, takes); err != nil {
				return err
			}
		}
		if fails {
			return errGreeting
		}
		if own.Greeting.Selects && !isSubscription() { // a command is repeated after a pause
			return c.Select(ctx, 0).Err()
		}
		return nil
	}
}

// ungreeted notes that a client may have no new connections. It greets all nodes of a cluster in one way.
func (r *register) ungreeted(t touched) {
	places := []int{t.server}
	for i := range r.w.plan.shards() {
		if i != t.server {
			places = append(places, i)
		}
	}
	for _, place := range places {
		t.server = place
		r.locksOut(t)
	}
}
