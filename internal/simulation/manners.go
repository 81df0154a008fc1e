package simulation

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// A hook may take long, or not return as long as its client lives; it may call the client, and end its
// goroutine. A logger may not return. Each holds up what it is called in, and nothing else: a hook of
// renewals the renewal of other locks, too.

// Manners are what the hooks and the logger of a client do besides.
type Manners struct {
	Hangs *hanging   `json:",omitempty"` // a hook that does not return for a time
	Calls []hookCall `json:",omitempty"` // what hooks call
	Exits bool       `json:",omitempty"` // hooks end their goroutine where others panic
	Stuck *hanging   `json:",omitempty"` // the logger does not return for a time
}

// A hanging is when somebody who is called does not return.
type hanging struct {
	Hook string        `json:",omitempty"`
	At   time.Duration // at the first call from then on
	For  time.Duration `json:",omitempty"` // 0: until all clients are closed
}

// A hookCall is what a hook calls.
type hookCall struct {
	Hook string
	At   time.Duration // at the first call from then on
	Op   Op
}

// What a hook holds up: its call, the report of losses or Close; in Waiting those behind its call, too, and
// the renewal of other locks.
const (
	heldUp         = "held-up"
	heldUpBehind   = "held-up-behind"
	heldUpRenewals = "held-up-renewals"
)

func init() {
	for kind, t := range map[string]touch{heldUp: {}, heldUpBehind: {fails: true}, heldUpRenewals: {loses: true, fails: true}} {
		kinds[kind], furtherKinds[kind] = t, t
	}
}

// heldUpSince reports whether a hook of any client has held up calls since then.
func (r *register) heldUpSince(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == heldUp && t.to.After(since) })
}

// renewalsHeldUpSince reports whether a hook has held up the renewals of a client since then, and with them what
// their answers say of other locks.
func (r *register) renewalsHeldUpSince(client int, since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.kind == heldUpRenewals && t.client == client && t.to.After(since)
	})
}

var (
	callHooks    = []string{"Acquiring", "Waiting", "Acquired", "NotAcquired", "Released"}
	renewalHooks = []string{"Renewed", "RenewalFailed"}
	allHooks     = append(append([]string{"Lost", "Closed"}, renewalHooks...), callHooks...)
)

// manners draws what hooks and loggers do besides.
func (g *generator) manners() {
	g.hangs()
	g.hookCalls()
	g.exits()
	g.stuck()
}

// hangs draws hooks that do not return.
func (g *generator) hangs() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 130))}
	if !g.often(15) {
		return
	}
	g.withHooks(50, func(c *Party) {
		c.Hooks = "slow"
		c.Hangs = &hanging{Hook: pick(g.draw, allHooks...), At: g.within(0, g.plan.Length/2), For: g.lasting()}
		if g.often(40) {
			c.Hangs.For = 0
		}
	})
}

// hookCalls draws hooks that ask for a lock, or after one.
func (g *generator) hookCalls() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 131))}
	if !g.often(15) {
		return
	}
	g.withHooks(70, func(c *Party) {
		c.Hooks = "slow"
		for range 1 + g.IntN(5) {
			op := Op{Call: pick(g.draw, "trylock", "trylock", "tryrlock", "lock", "inspect", "names"), Names: []int{g.IntN(g.plan.Names)}, Unlock: "live"}
			if op.Call == "lock" {
				op.Wait = g.within(0, g.plan.TTL/2)
			}
			c.Calls = append(c.Calls, hookCall{Hook: pick(g.draw, allHooks...), At: g.within(0, g.plan.Length), Op: op})
		}
	})
}

// exits draws hooks that end their goroutine.
func (g *generator) exits() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 132))}
	for i := range g.plan.Clients {
		c := &g.plan.Clients[i]
		c.Exits = c.Hooks == "panic" && g.often(30)
	}
}

// stuck draws loggers that do not return.
func (g *generator) stuck() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 133))}
	if !g.often(20) {
		return
	}
	for i := range g.plan.Clients {
		if c := &g.plan.Clients[i]; c.Logs && g.often(50) {
			c.Stuck = &hanging{At: g.within(0, g.plan.Length/2), For: g.lasting()}
			if g.often(50) {
				c.Stuck.For = 0
			}
		}
	}
}

func (g *generator) withHooks(percent int, f func(*Party)) {
	for i := range g.plan.Clients {
		if c := &g.plan.Clients[i]; c.Hooks != "" && g.often(percent) {
			f(c)
		}
	}
}

// misbehaves does what a hook of the client does besides at this moment.
func (l *listener) misbehaves(ctx context.Context, hook string) {
	if l.w == nil || hook == "Lost" && isClosed(l.closed) { // whoever looks at a lease may be told of its loss then
		return
	}
	l.mu.Lock()
	now := time.Since(l.reg.began)
	hangs, op := l.hangs, (*Op)(nil)
	if hangs != nil && (hangs.Hook != hook || now < hangs.At) {
		hangs = nil
	}
	if hangs != nil {
		l.hangs = nil
	}
	for i, c := range l.asks {
		if c.Hook == hook && now >= c.At {
			op = &c.Op
			l.asks = append(l.asks[:i:i], l.asks[i+1:]...)
			break
		}
	}
	l.mu.Unlock()
	if hangs == nil && op == nil {
		return
	}
	goesOn := l.reg.holdsUp(ctx, l.index, hook)
	defer goesOn()
	if hangs != nil {
		l.reg.tell(l.index, "%s hangs", hook)
		l.w.hang(hangs.For, hook == "Renewed" || hook == "RenewalFailed" || hook == "Closed" && ctx.Value(closingKey{}) != nil)
	}
	if op != nil {
		l.reg.tell(l.index, "%s calls %s", hook, op.Call)
		(&actor{l.w, l.w.clients[l.index], new(group)}).do(context.Background(), nil, op)
	}
}

// hang returns after some time, or when all clients are closed, if the time is 0. Who is called by a party
// returns when the parties stop.
func (w *world) hang(d time.Duration, alone bool) {
	over := w.over.Done()
	if alone {
		over = w.freed
	}
	after := make(<-chan time.Time)
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-after:
	case <-over:
	}
}

type callKey struct{}

// withCall returns a context of which hooks know for which call they are called.
func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// heldUpBy is whom a hook that does not return may hold up.
func (r *register) heldUpBy(ctx context.Context, client int, hook string) (calls []*call) {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil {
		return []*call{c}
	}
	for c := range r.calls { // it may be called in any of them
		if c.client == client && hook == "Lost" {
			calls = append(calls, c)
		}
	}
	return calls
}

// holdsUp notes that a hook does not return at once. Its call goes on when it has.
func (r *register) holdsUp(ctx context.Context, client int, hook string) (goesOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coverage["a hook does not return × "+hook]++
	began, from := time.Now(), len(r.touches)
	all := touched{kind: heldUp, client: -1, from: began, to: r.began.Add(r.w.plan.Length + time.Hour)}
	r.touches = append(r.touches, all)
	mine := all
	switch mine.client = client; hook {
	case "Waiting":
		mine.kind = heldUpBehind
	case "Renewed", "RenewalFailed":
		mine.kind = heldUpRenewals
	}
	r.touches = append(r.touches, mine)
	calls := r.heldUpBy(ctx, client, hook)
	for _, c := range calls {
		c.stops()
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.touches[from].to, r.touches[from+1].to = time.Now(), time.Now()
		for _, c := range calls {
			c.goesOn()
		}
	}
}

// A holdUp is what is known of a call while hooks do not return that hold it up.
type holdUp struct {
	hooks int       // how many there are
	since time.Time // when the first of them was called
	bound time.Time // of the call then
}

// stops notes that a hook holds up a call.
func (c *call) stops() {
	if c.held.hooks++; c.held.hooks == 1 {
		c.held.since, c.held.bound, c.bound, c.heldUp = time.Now(), c.bound, time.Time{}, true
	}
}

// goesOn notes that such a hook has returned.
func (c *call) goesOn() {
	if c.held.hooks--; c.held.hooks == 0 && !c.held.bound.IsZero() {
		c.bound = c.held.bound.Add(time.Since(c.held.since))
	}
}

// took is how long a call has taken, until the last hook that has held it up for a time was called.
func (c *call) took() time.Duration {
	if c.heldUp {
		return c.held.since.Sub(c.start)
	}
	return time.Since(c.start)
}

// leftBehind is within what time Close leaves behind hooks, and a logger, that do not return.
const leftBehind = 250 * time.Millisecond

// leavesBehind is for how much longer a Close may take for what does not return.
func (w *world) leavesBehind(client int) time.Duration {
	if m := w.plan.Clients[client].Manners; m.Hangs != nil || m.Stuck != nil || len(m.Calls) > 0 {
		return leftBehind
	}
	return 0
}

// stick has the logger not return, as soon as it is told a line. Unlock waits for one of its own, and who says
// that a lease was dropped is in no bubble.
func (b *logBook) stick(text string) {
	if b.stuck == nil || text == unconfirmedLine || text == termLine || text == droppedLine {
		return
	}
	b.mu.Lock()
	h := b.stuck
	if time.Since(b.reg.began) < h.At {
		h = nil
	} else {
		b.stuck = nil
	}
	b.mu.Unlock()
	if h == nil {
		return
	}
	goesOn := make(chan struct{})
	defer close(goesOn)
	go func() { // whoever looks at a lease may have it be logged
		b.reg.tell(b.index, "the logger hangs: %s", text)
		defer b.reg.holdsUp(context.Background(), b.index, "Logger")()
		<-goesOn
	}()
	b.w.hang(h.For, true)
}

// survive is survived where hooks may end their goroutine, which is as if they panicked.
func (l *listener) survive(f func() error) error {
	if !l.exits {
		return survived(f)
	}
	var e ending
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.run(f)
	}()
	<-done
	if e.exited {
		return errPanicked
	}
	return cmp.Or(e.err, e.thrown)
}

// endsAlone is what a hook does last that ends with its goroutine, and nothing else does.
func (l *listener) endsAlone() {
	l.act(false, 0)
	if l.exits {
		runtime.Goexit()
	}
}

// throws is how a hook fails.
func (l *listener) throws() {
	if l.exits {
		runtime.Goexit()
	}
	panic(errPanicked)
}
