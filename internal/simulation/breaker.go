package simulation

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Settings of a circuit breaker, which a program has its own client ask before each request, by Options.Limiter
// or by a hook: it refuses all for a time, and at once, when so many have failed one after the other. Then it
// lets few pass, and goes by what becomes of those. What else the program does with its client may have opened it, too.
type circuitSettings struct {
	Fails int           // in a row, that open it
	Rest  time.Duration // for how long
	Hooks bool          `json:",omitempty"` // it is a hook
}

func init() {
	maps.Copy(furtherKinds, map[string]touch{"breaker": {loses: true, fails: true}})
	kinds["breaker"] = furtherKinds["breaker"]
	keepsConnections = append(keepsConnections, "breaker")
}

var errOpen = errors.New("circuit breaker is open")

// breakers draws them in a part of the plans with faults, and when something else opens them.
func (g *generator) breakers() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 212))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || p.Fresh || len(p.Faults) == 0 || len(p.Durable) > 0 || p.TTL >= 10*time.Minute || !g.often(10) {
		return
	}
	if g.often(40) {
		p.Faults = nil
	}
	for i := range p.Clients {
		c := &p.Clients[i]
		if c.Opens != nil || c.Asks || p.isShared(i) || !g.often(70) {
			continue
		}
		made := c.ownCopy()
		made.Breaker = &circuitSettings{
			Fails: pick(g.draw, 1, 3, 6), Rest: pick(g.draw, 200*time.Millisecond, time.Second, 10*time.Second),
			Hooks: p.Cluster || p.Sentinels || g.often(50),
		}
		c.Own = &made
		for range g.IntN(4) {
			f := Fault{Kind: "breaker", At: g.within(0, p.Length), Client: i}
			f.For = g.lasting()
			p.Faults = append(p.Faults, f)
		}
	}
}

// A circuit is that of a client to one server, or to all that it has, with its breaker.
type circuit struct {
	circuitSettings
	r      *register
	client int
	places []int

	mu     sync.Mutex
	failed int
	opens  time.Time // until when it is open
	tries  int       // how many pass, to see
	denied []time.Time
}

// newCircuit returns one, nil where a client has none.
func (w *world) newCircuit(client int, places ...int) *circuit {
	own := w.plan.Clients[client].Own
	if own == nil || own.Breaker == nil {
		return nil
	}
	f := &circuit{circuitSettings: *own.Breaker, r: w.reg, client: client, places: places}
	w.circuits.mu.Lock()
	defer w.circuits.mu.Unlock()
	w.circuits.all = append(w.circuits.all, f)
	return f
}

// opensBreakers has those of a client be open until then.
func (w *world) opensBreakers(client int, end time.Time) {
	w.circuits.mu.Lock()
	defer w.circuits.mu.Unlock()
	for _, f := range w.circuits.all {
		if f.client == client {
			f.mu.Lock()
			f.opens, f.tries, f.failed = later(f.opens, end), 0, f.Fails
			f.mu.Unlock()
		}
	}
}

// mostRefused is how often a client is refused within a second: no pause is shorter for it than for a server
// that refuses it, and many locks are asked for by one request.
const mostRefused = 400

// mostTries is how many requests pass at once where it is to be seen whether a server is back: the client library
// asks within a request, as it makes the connection for it, for each command by which that begins.
const mostTries = 3

// Allow implements goredis.Limiter.
func (f *circuit) Allow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Before(f.opens) || f.tries >= mostTries {
		f.denied = append(f.denied, now)
		for len(f.denied) > 0 && now.Sub(f.denied[0]) > time.Second {
			f.denied = f.denied[1:]
		}
		if len(f.denied) > mostRefused {
			f.denied = nil
			f.tells()
		}
		f.touches(now)
		return errOpen
	}
	if f.failed >= f.Fails {
		f.tries++
	}
	return nil
}

// ReportResult implements goredis.Limiter.
func (f *circuit) ReportResult(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries = max(f.tries-1, 0)
	var reply goredis.Error
	if err == nil || errors.As(err, &reply) {
		f.failed, f.tries = 0, 0
		return
	}
	if f.failed++; f.failed >= f.Fails {
		now := time.Now()
		f.opens = now.Add(f.Rest)
		f.touches(f.opens)
	}
}

// touches notes that the client is refused until then.
func (f *circuit) touches(to time.Time) {
	r, now := f.r, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, place := range f.places {
		is := func(t touched) bool {
			return t.kind == "breaker" && t.client == f.client && t.server == place && !t.to.Before(now.Add(-time.Second))
		}
		if i := slices.IndexFunc(r.touches, is); i >= 0 {
			r.touches[i].to = later(r.touches[i].to, to)
			continue
		}
		r.adds(touched{kind: "breaker", client: f.client, server: place, from: now, to: to})
	}
}

// tells reports a client that asks again without a pause.
func (f *circuit) tells() {
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violate("a client pauses", "c%d was refused more than %d times within a second", f.client, mostRefused)
}

// guards has o ask one.
func (w *world) guards(o *goredis.Options, client, place int) {
	own := w.plan.Clients[client].Own
	if own != nil && own.Breaker != nil && !own.Breaker.Hooks {
		o.Limiter = w.newCircuit(client, place)
	}
}

// hooked has a client of the client library ask one by a hook.
func (w *world) hooked(g goredis.UniversalClient, client, place int) {
	own := w.plan.Clients[client].Own
	if own == nil || own.Breaker == nil || !own.Breaker.Hooks {
		return
	}
	if c, is := g.(*goredis.ClusterClient); is {
		var all []int
		for i := range w.plan.shards() {
			all = append(all, i)
		}
		c.OnNewNode(func(n *goredis.Client) { n.AddHook(w.newCircuit(client, all...)) })
		return
	}
	g.AddHook(w.newCircuit(client, place))
}

// DialHook implements goredis.Hook.
func (f *circuit) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// withinKey is what a request has asked in its context: a connection that is made for it is made ready
// through the same hooks.
type withinKey struct{}

// ProcessHook implements goredis.Hook.
func (f *circuit) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if ctx.Value(withinKey{}) != nil {
			return next(ctx, cmd)
		}
		ctx = context.WithValue(ctx, withinKey{}, f)
		if err := f.Allow(); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		f.ReportResult(err)
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (f *circuit) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if ctx.Value(withinKey{}) != nil {
			return next(ctx, cmds)
		}
		ctx = context.WithValue(ctx, withinKey{}, f)
		if err := f.Allow(); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		err := next(ctx, cmds)
		f.ReportResult(err)
		return err
	}
}
