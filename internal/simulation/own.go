package simulation

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// An own client is one that a program has made for itself: with what the client library does if
// nobody tells it otherwise, or with fewer connections, or by the older protocol.
type own struct {
	Protocol int `json:",omitempty"` // 2, or what is usual
	PoolSize int `json:",omitempty"` // 0: what is usual

	Timeout time.Duration `json:",omitempty"` // of an answer, of what is sent, and of an attempt to connect; 0: what is usual
	Retries int           `json:",omitempty"` // of a command; 0: what is usual, less: none

	Pool    *pool            `json:",omitempty"` // nil: what is usual
	Limits  *habits          `json:",omitempty"` // nil: what is usual
	Breaker *circuitSettings `json:",omitempty"` // nil: it has none

	Greeting *greeting `json:",omitempty"` // nil: it does nothing on new connections

	Streams bool `json:",omitempty"` // it is told of its credentials as they come

	First bool `json:",omitempty"` // the program closes it before the client of the library
}

// ownCopy is how the client of a party is made by its program, by default if the library makes it now. What is changed in
// it changes no other party.
func (p *Party) ownCopy() own {
	if p.Own == nil {
		return own{}
	}
	return *p.Own
}

// owns draws clients that programs make, for how long the key of a free lock is kept, and who
// of several clients does without the replicas.
func (g *generator) owns() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 43))}
	p := g.plan
	if p.Backend == "memory" {
		return
	}
	p.Keep = pick(g.draw, 0, 0, 0, time.Second, 5*time.Second)
	if g.often(35) {
		for i := range p.Clients {
			if g.often(60) {
				p.Clients[i].Own = &own{Protocol: pick(g.draw, 0, 2), PoolSize: pick(g.draw, 0, 1, 2, 3)}
			}
		}
	}
	if p.Acks && g.often(50) {
		for i := range p.Clients {
			p.Clients[i].Careless = g.often(50)
		}
	}
	if len(p.Faults) > 0 && !p.Cluster && g.often(15) {
		g.crowds()
	}
}

// crowds has a program use all connections of a client for something else.
func (g *generator) crowds() {
	servers := g.plan.Faults
	for range 1 + g.IntN(3) {
		f := Fault{Kind: "pool", At: g.within(0, g.plan.Length), Client: g.IntN(len(g.plan.Clients)), Server: pick(g.draw, servers...).Server}
		f.For = g.lasting()
		if g.plan.Clients[f.Client].Own == nil {
			g.plan.Clients[f.Client].Own = &own{PoolSize: 1 + g.IntN(3)}
		}
		g.plan.Faults = append(g.plan.Faults, f)
	}
}

// asMade has the options of a client be those of a program, if it is one's own. Sentinels are asked
// with a mutex held, and by the same options: nothing that a pause comes before is repeated there.
func (w *world) asMade(i int, o *goredis.Options) *goredis.Options {
	mine := w.plan.Clients[i].Own
	if mine == nil {
		return o
	}
	retries, dial := mine.Retries, patient(o.Dialer)
	if w.plan.Sentinels {
		retries = -1
	}
	if mine.Timeout > 0 { // of all attempts together
		dial = o.Dialer
	}
	made := &goredis.Options{
		MaxRetries: retries, ReadTimeout: mine.Timeout, WriteTimeout: mine.Timeout, DialTimeout: mine.Timeout,
		Addr: o.Addr, ClientName: o.ClientName, Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext,
		Protocol: mine.Protocol, PoolSize: mine.PoolSize,
		Dialer: dial, DialerRetries: 1,
		MaintNotificationsConfig: o.MaintNotificationsConfig, // the client library asks for them with a mutex held
		ReadBufferSize:           bufferSize, WriteBufferSize: bufferSize,
	}
	mine.Pool.asPooled(made)
	mine.Limits.asLimited(made)
	made.OnConnect, made.StreamingCredentialsProvider = o.OnConnect, o.StreamingCredentialsProvider
	return made
}

// dialer dials whoever has an address.
func (w *world) dialer(client int) dialer {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) { return w.dial(ctx, client, addr) }
	if own := w.plan.Clients[client].Own; own == nil || own.Timeout > 0 || w.plan.Sentinels {
		return dial
	}
	return patient(dial)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// How often the client library dials, and how long it pauses between.
const (
	dials     = 5
	dialPause = 100 * time.Millisecond
)

// patient is a dialer that tries again, as the client library does by itself. That does so for a
// subscription too, with a mutex held; see dial.
func patient(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		for i := range dials {
			if c, err = dial(ctx, network, addr); err == nil || isSubscription() || i == dials-1 {
				break
			}
			if sleep(ctx, dialPause) != nil {
				break
			}
		}
		return c, err
	}
}

// crowd has all connections of the client to a place be in use until then.
func (w *world) crowd(f Fault, end time.Time) {
	shared := w.clients[f.Client].shared
	if f.Server >= len(shared) { // it begins later
		return
	}
	c, isOne := shared[f.Server].(*goredis.Client)
	if !isOne {
		return
	}
	ctx, cancel := context.WithDeadline(w.over, end)
	defer cancel()
	var takers group
	for range c.Options().PoolSize {
		takers.run(func() {
			conn := c.Conn()
			defer conn.Close()
			if conn.Ping(ctx).Err() == nil {
				<-ctx.Done()
			}
		})
	}
	takers.wait()
}

// announces reports whether each new connection of a client sees whether its server has restarted: a
// URL has made it.
func (p *Plan) announces(client int) bool {
	return p.Announced && p.Clients[client].Own == nil && !p.needsAll() && !p.Clients[client].Asks
}

// areCareful reports whether the holds of all of some clients count on the word of a replica; of
// no client in particular, all.
func (p *Plan) areCareful(clients []int) bool {
	for i, c := range p.Clients {
		if c.Careless && (len(clients) == 0 || slices.Contains(clients, i)) {
			return false
		}
	}
	return true
}

// keeps is for how long a server keeps the token of a free lock at least.
func (p *Plan) keeps() time.Duration {
	least := 10 * time.Minute
	for i := range p.Clients {
		if keep := p.keepOf(i); keep > 0 {
			least = min(least, keep)
		}
	}
	return least
}
