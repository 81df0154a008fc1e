package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "unsafe" // for schemes

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/redis"
)

// An opening has a client begin by Open, and not before the world: something may be wrong then. It
// tries again until that succeeds.
type opening struct {
	Limit time.Duration // of the context of each try; 0: none
}

// openings draws clients that come into trouble: at a time at which something goes wrong, or into
// something that goes wrong for that.
func (g *generator) openings() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 53))}
	p := g.plan
	if p.Backend == "memory" || p.Need > 0 || len(p.Faults) == 0 || !g.often(20) {
		return
	}
	before := p.Faults
	if g.often(30) {
		p.Faults = nil
	}
	for range 1 + g.IntN(3) {
		f := pick(g.draw, before...)
		if len(p.Faults) == 0 || g.often(60) {
			f = g.trouble(f.Server)
		}
		next := p.Clients[g.IntN(len(p.Clients))]
		next.Close, next.Own = 0, nil // Open makes its own client
		next.After = max(1, f.At+pick(g.draw, g.within(-10*time.Millisecond, 10*time.Millisecond), g.within(0, f.For+time.Millisecond)))
		next.Opens = &opening{Limit: pick(g.draw, 0, 0, g.within(10*time.Millisecond, 3*time.Second), 30*time.Second)}
		if next.After < p.Length {
			p.Clients = append(p.Clients, next)
		}
	}
}

// trouble adds what may keep a client from beginning. On a quorum it is at as many servers as a
// majority can do without, or at one more.
func (g *generator) trouble(place int) Fault {
	p := g.plan
	kinds := []string{"pause", "hole", "cut", "restart", "restart-empty", "loading", "readonly", "busy", "misconf", "noperm", "login", "door", "pause-writes", "full", "no-channels"}
	if p.Backend == "redis" && p.Replica {
		kinds = append(kinds, "promotion", "failover", "promotion")
	}
	f := Fault{Kind: pick(g.draw, kinds...), At: g.within(0, p.Length), Client: -1, Server: place, Way: g.IntN(3), For: g.lasting()}
	f.Size = pick(g.draw, 0, g.within(0, 100*time.Millisecond))
	p.Faults = append(p.Faults, f)
	if p.Backend == "quorum" {
		for i := range p.Servers/2 - 1 + g.IntN(2) {
			o := f
			o.Server = (place + 1 + i) % p.Servers
			p.Faults = append(p.Faults, o)
		}
	}
	return f
}

// A newcomer is a client that is being opened: its context says which.
type newcomer struct {
	w *world
	c *client
}

type newcomerKey struct{}

// simulated is the scheme of the servers of a world.
const simulated = "simulated"

// schemes is which scheme the nodes of a quorum have, by that of the quorum.
//
//go:linkname schemes github.com/dlock-go/dlock/backend/quorum.schemes
var schemes map[string]string

func init() {
	backend.Register(simulated, openSimulated)
	schemes["redlock"] = simulated
}

// openSimulated does what the opener of backend/redis does, with a client that connects to the
// servers of a world.
func openSimulated(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	n := ctx.Value(newcomerKey{}).(newcomer)
	host, _, _ := strings.Cut(cfg.URL.Hosts[0], ":")
	place, _ := strconv.Atoi(strings.TrimPrefix(host, "s"))
	g := n.w.client(n.c.index, place)
	n.c.shared = append(n.c.shared, g)
	b := redis.New(g, n.w.settings(n.c.index))
	*private[bool](b, "owned") = true
	if cfg.Member {
		if n.w.plan.announces(n.c.index) {
			goByAnnouncements(b)
		}
		return b, nil
	}
	if err := b.CheckServer(ctx); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// url is what a client opens.
func (w *world) url() string {
	if w.plan.Backend != "quorum" {
		return simulated + "://s0"
	}
	var hosts []string
	for place := range w.plan.Servers {
		hosts = append(hosts, "s"+strconv.Itoa(place))
	}
	url := "redlock://" + strings.Join(hosts, ",")
	var settings []string
	if p := w.plan; p.MaxTTL > 0 {
		settings = append(settings, "dlock.maxttl="+p.MaxTTL.String())
	}
	if p := w.plan; p.Skew > 0 {
		settings = append(settings, "dlock.skew="+p.Skew.String())
	}
	if len(settings) > 0 {
		url += "?" + strings.Join(settings, "&")
	}
	return url
}

// opens has a client begin by Open, and reports whether it has.
func (w *world) opens(c *client, o *opening) bool {
	party := &w.plan.Clients[c.index]
	w.faraway(c)
	for w.over.Err() == nil && !c.dead.Load() {
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), newcomerKey{}, newcomer{w, c}))
		if o.Limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, o.Limit)
		}
		hooks, heard := w.listens(c)
		c.shared = nil
		w.reg.opening(c.index)
		began := time.Now()
		d, err := dlock.Open(ctx, w.url(), party.options(&dlock.Options{TTL: w.plan.TTL, Hooks: hooks}))
		w.reg.opened(c.index, ctx, o, began, err)
		cancel()
		if err == nil {
			w.wears(d)
			c.hooks, c.Client, c.byName = heard, d, party.locksByName(d)
			return true
		}
		_ = sleep(w.over, openPause)
	}
	return false
}

// openPause is how long a program waits before it tries to open once more.
const openPause = 200 * time.Millisecond

// mostOpening is how long Open waits for a server: ten seconds, on a quorum a second more where it
// is known whether enough answer.
const mostOpening = 11 * time.Second

// opening notes that a client is being opened.
func (r *register) opening(client int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.affords(client, 2*requests)
	r.works[client] = append(r.works[client], work{time.Now(), 1})
	r.note(client, "open?")
}

// opened checks how an Open has ended: in time, and for a reason that there is.
func (r *register) opened(client int, ctx context.Context, o *opening, began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(client, "open: %v", err)
	if r.dead[client] || r.stuttered(began) {
		return
	}
	bound := mostOpening
	if o.Limit > 0 {
		bound = min(bound, o.Limit)
	}
	if took := time.Since(began); took > bound+undoing && !r.stood(client, began) {
		r.violate("every call ends", "c%d open took %v, more than %v", client, took, bound)
	}
	since := began.Add(-lingers)
	fails := func(t touch) bool { return t.fails }
	switch {
	case err == nil:
	case errors.Is(err, dlock.ErrAuth): // one server of several that denies it is enough
		if !r.touched(client, since, denies) {
			r.violate("errors are true", "c%d open: %v", client, err)
		}
	case errors.Is(err, dlock.ErrInvalidConfig) && r.knowsNoMaster(began):
	case errors.Is(err, dlock.ErrUnavailable):
		if (ctx.Err() == nil || o.Limit > r.w.plan.opensWithin()) && !r.harmed(client, since, fails) {
			r.violate("reachable is available", "c%d open: %v", client, err)
		}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		if o.Limit > unanswered+20*r.w.plan.slowest() && !r.harmed(client, since, fails) {
			r.violate("reachable is available", "c%d open: %v", client, err)
		}
	default:
		r.violate("errors are true", "c%d open: %v", client, err)
	}
}

// opensWithin is what Open must have to know that it can have no client: on a quorum it waits for who is
// silent for a second after the others have answered, and ends without a client if its context does.
func (p *Plan) opensWithin() time.Duration {
	if p.Backend == "quorum" {
		return unanswered + time.Second + 20*p.slowest()
	}
	return unanswered
}

// startsLate has a fault last until a new server of a quorum votes that cannot note, when it is first
// asked, that it has kept all it knows: who asks next takes it for one that may have forgotten holds.
func (r *register) startsLate(t *touched) {
	p := r.w.plan
	if p.Fresh && p.waitsToVote() && r.grants == 0 && slices.Contains([]string{"full", "readonly", "misconf", "noperm"}, t.kind) {
		t.to = t.to.Add(p.rejoining())
	}
}
