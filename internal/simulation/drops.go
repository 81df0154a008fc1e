package simulation

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

// A program that forgets to unlock drops its lease: nobody refers to it any more. The library goes on to
// renew the lock, and says so once the garbage collector has found that, which looks at a moment of the
// plan. Who uses the lease here has a copy of it, which is as good for everything but that.

// drops has leases be dropped in a part of the plans whose clients have loggers.
func (g *generator) drops() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 172))}
	if !g.often(25) {
		return
	}
	for _, c := range g.plan.Clients {
		if !c.Logs {
			continue
		}
		for _, ops := range c.Workers {
			for range min(2, len(ops)) {
				op := &ops[g.IntN(len(ops))]
				if op.mayDrop() {
					op.Drops, op.Hold = true, g.within(g.plan.TTL, 2*g.plan.TTL)
					op.Forget = op.Forget || len(op.AtOnce) == 0 && g.often(10)
				}
			}
		}
	}
}

// mayDrop reports whether the lease of op can be dropped, and is there for long enough: locks by name, Do,
// and the locks of several, refer to theirs.
func (op *Op) mayDrop() bool {
	return slices.Contains([]string{"lock", "trylock", "rlock", "tryrlock"}, op.Call) && !op.ByName && op.MaxHold == 0 && op.TTL == 0
}

// A dropping is a Locker whose caller has a copy of the lease, which nobody else refers to.
type dropping struct {
	dlock.Locker
	log *logBook
}

func (d dropping) Lock(ctx context.Context) (*dlock.Lease, error) {
	return d.copied(d.Locker.Lock(ctx))
}

func (d dropping) TryLock(ctx context.Context) (*dlock.Lease, error) {
	return d.copied(d.Locker.TryLock(ctx))
}

func (d dropping) copied(lease *dlock.Lease, err error) (*dlock.Lease, error) {
	if err != nil {
		return nil, err
	}
	drop := *lease
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	d.log.drops = append(d.log.drops, logged{lease.Name(), lease.Token()})
	return &drop, nil
}

// A logged is a hold of which something is logged.
type logged struct {
	name  string
	token uint64
}

// isDropped reports whether the lease of op is dropped. Where goroutines are stopped, the one that says so
// might be.
func (a *actor) isDropped(op *Op) bool {
	return op.Drops && a.c.log != nil && !slowsync.HasProcesses() && !slices.ContainsFunc(a.w.plan.Faults, func(f Fault) bool { return f.Kind == "stutter" })
}

// dropped is a Locker for op.
func (a *actor) dropped(l dlock.Locker, op *Op) dlock.Locker {
	if !a.isDropped(op) {
		return l
	}
	return dropping{l, a.c.log}
}

// collections is after how many of them, a part of a lease apart, something must be said of a lease that was
// dropped and renewed since.
const collections = 3

// findsDropped checks that it is said of the lease of b that it was dropped, once it was renewed.
func (a *actor) findsDropped(b *belief) {
	name, had := a.local(b.name), b.lease.Until()
	for missed := 0; missed < collections; {
		if sleep(a.w.over, b.ttl/8) != nil || !a.w.reg.isLive(b) {
			return
		}
		if !b.lease.Until().After(had.Add(b.ttl / 8)) {
			continue
		}
		runtime.GC()
		for range 20 {
			if a.c.log.has(droppedLine, name, b.token) {
				a.w.reg.covers("a lease dropped")
				return
			}
			outdoors.pause()
		}
		missed++
	}
	if a.w.reg.isLive(b) {
		a.violate("the logger is told what is", "c%d: nothing of %v, which was dropped", b.client, b)
	}
}

func (r *register) covers(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coverage[what]++
}

// saysDropped checks that no more leases were said to be dropped than were.
func (w *world) saysDropped() {
	for _, c := range w.clients {
		if c.log == nil {
			continue
		}
		c.log.mu.Lock()
		left := slices.Clone(c.log.drops)
		lines := slices.Clone(c.log.dropped)
		c.log.mu.Unlock()
		for _, l := range lines {
			i := slices.IndexFunc(left, func(d logged) bool { return l.is(d.name, d.token) })
			if i < 0 {
				w.reg.isLogged(c.index, l, "no such lease was dropped, or it was said before")
				continue
			}
			left = slices.Delete(left, i, i+1)
		}
	}
}

// outdoors is where real time goes by, which is what a goroutine of the runtime takes.
var outdoors = newOutsider()

// An outsider is a goroutine that is in no bubble.
type outsider struct{ ask, done chan struct{} }

func newOutsider() outsider {
	o := outsider{make(chan struct{}), make(chan struct{})}
	go func() {
		for range o.ask {
			time.Sleep(5 * time.Millisecond)
			o.done <- struct{}{}
		}
	}()
	return o
}

// pause has a moment of real time go by, and none of the bubble's.
func (o outsider) pause() {
	o.ask <- struct{}{}
	<-o.done
}
