package chaos

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/file"
	"github.com/dlock-go/dlock/backend/memory"
)

var leases = flag.Duration("leases", 3*time.Second, "how long leases are taken at random through the public API, on each backend")

// TestLeases takes and gives up leases of a few locks at random through the public
// API, in one process: Lock, TryLock, readers, Downgrade, entries unlocked in any
// order, contexts that end, losses, Close. Whatever happens, two leases that exclude
// each other never both say that they last, and tokens grow. Ten minutes of it:
//
//	go test -race -run TestLeases -v ./internal/chaos -leases=10m
func TestLeases(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := memory.NewServer()
		p := &play{t: t, open: func() backend.Backend { return memory.New(s) }}
		p.run(*leases)
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		p := &play{t: t, open: func() backend.Backend {
			b, err := file.New(&file.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}}
		p.run(*leases)
	})
}

// playTTL is short: leases end by themselves whenever a client is cut off.
const playTTL = 60 * time.Millisecond

// A play is one run of TestLeases on one backend.
type play struct {
	t    *testing.T
	open func() backend.Backend

	taken, lost, entered, downgraded, looks atomic.Int64

	mu      sync.Mutex
	held    map[string][]*played // leases that were not unlocked, by name
	written map[string]uint64    // the greatest token of an exclusive lease, by name
}

// A played is a lease in the tree of leases on one hold.
type played struct {
	*dlock.Lease
	parent *played
	shared bool // guarded by the mutex of the play
}

func (p *play) run(d time.Duration) {
	p.held, p.written = make(map[string][]*played), make(map[string]uint64)
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				p.client(ctx)
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				p.look()
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
			}
		})
	}
	all.Wait()
	p.t.Logf("%d leases, %d entries made under one, %d downgrades, %d losses, %d pairs looked at",
		p.taken.Load(), p.entered.Load(), p.downgraded.Load(), p.lost.Load(), p.looks.Load())
	if p.lost.Load() == 0 || p.taken.Load() == 0 {
		p.t.Error("nothing was lost, or nothing taken")
	}
	p.free()
}

var playNames = []string{"a", "b", "c", "d", "e", "f"}

// anyName has most calls meet at the first names.
func anyName() string { return playNames[rand.IntN(1+rand.IntN(len(playNames)))] }

// client is the life of one client, which ends with Close in the middle of its work.
func (p *play) client(ctx context.Context) {
	b := p.open()
	c, err := dlock.New(b, &dlock.Options{TTL: playTTL, Hooks: dlock.Hooks{Lost: func(dlock.LostEvent) { p.lost.Add(1) }}})
	if err != nil {
		p.t.Error(err)
		return
	}
	life, cancel := context.WithTimeout(ctx, time.Duration(200+rand.IntN(2000))*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for life.Err() == nil {
				p.turn(life, c)
			}
		})
	}
	all.Go(func() { p.faults(life, b) })
	<-life.Done()
	if err := c.Close(context.Background()); err != nil && !errors.Is(err, dlock.ErrUnavailable) {
		p.t.Error(err)
	}
	all.Wait()
}

// faults cuts a client off where that can be, again and again.
func (p *play) faults(ctx context.Context, b backend.Backend) {
	cuttable, _ := b.(interface {
		Cut()
		Heal()
	})
	for cuttable != nil && backend.Sleep(ctx, time.Duration(rand.IntN(40))*time.Millisecond) {
		cuttable.Cut()
		backend.Sleep(ctx, time.Duration(rand.IntN(100))*time.Millisecond)
		cuttable.Heal()
	}
}

// turn takes one lock, and perhaps enters it again, and gives all up in any order.
func (p *play) turn(ctx context.Context, c *dlock.Client) {
	name := anyName()
	var o []dlock.Option
	if rand.IntN(2) == 0 {
		o = append(o, dlock.WithMaxHold(time.Duration(10+rand.IntN(20))*time.Millisecond))
	}
	m := c.RWMutex(name, o...)
	root := p.take(ctx, m, name, nil)
	if root == nil {
		return
	}
	tree, work := []*played{root}, []context.Context{root.Context(ctx)}
	for range rand.IntN(5) {
		i := rand.IntN(len(tree))
		switch rand.IntN(7) {
		case 0:
			p.downgrade(ctx, root)
		case 1:
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		case 2:
			if len(o) > 0 { // it is lost soon
				<-root.Done()
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond) // the next may have it
			}
		default:
			if e := p.take(work[i], m, name, tree[i]); e != nil {
				p.entered.Add(1)
				tree, work = append(tree, e), append(work, e.Context(work[i]))
			}
		}
	}
	rand.Shuffle(len(tree), func(i, j int) { tree[i], tree[j] = tree[j], tree[i] })
	for _, e := range tree {
		p.giveUp(e, name)
	}
}

// take makes one of the four calls, with a context that may end early.
func (p *play) take(ctx context.Context, m *dlock.RWMutex, name string, parent *played) *played {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(30_000))*time.Microsecond)
	defer cancel()
	calls := []func(context.Context) (*dlock.Lease, error){m.Lock, m.TryLock, m.RLock, m.TryRLock}
	i := rand.IntN(len(calls))
	p.mu.Lock()
	before := p.written[name]
	p.mu.Unlock()
	lease, err := calls[i](ctx)
	if err != nil {
		p.explains(err)
		return nil
	}
	p.taken.Add(1)
	e := &played{Lease: lease, parent: parent, shared: i >= 2}
	p.mu.Lock()
	defer p.mu.Unlock()
	token := lease.Token()
	if parent == nil && token < before || parent == nil && token == before && !e.shared {
		p.t.Errorf("%s: token %d (shared: %t) after %d", name, token, e.shared, before)
	}
	if !e.shared {
		p.written[name] = max(p.written[name], token)
	}
	p.held[name] = append(p.held[name], e)
	return e
}

// explains reports an error that is of no kind which these calls can have.
func (p *play) explains(err error) {
	for _, kind := range []error{
		dlock.ErrHeld, dlock.ErrLost, dlock.ErrUnlocked, dlock.ErrUpgrade, dlock.ErrReentry, dlock.ErrClosed,
		dlock.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, kind) {
			return
		}
	}
	p.t.Error(err)
}

func (p *play) downgrade(ctx context.Context, root *played) {
	p.mu.Lock()
	was := root.shared
	root.shared = true // as soon as it may be
	p.mu.Unlock()
	err := root.Downgrade(ctx)
	switch {
	case err == nil:
		p.downgraded.Add(1)
	case errors.Is(err, dlock.ErrReentry): // nobody was asked
		p.mu.Lock()
		root.shared = was
		p.mu.Unlock()
	default:
		p.explains(err)
	}
}

// giveUp unlocks e. By then it is over, whatever that returns.
func (p *play) giveUp(e *played, name string) {
	p.mu.Lock()
	for i, other := range p.held[name] {
		if other == e {
			p.held[name] = append(p.held[name][:i:i], p.held[name][i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
	defer cancel()
	if err := e.Unlock(ctx); err != nil {
		p.explains(err)
	}
	if e.Err() == nil {
		p.t.Error("a lease lasts after Unlock")
	}
	select {
	case <-e.Done():
	default:
		p.t.Error("Done is open after Unlock")
	}
}

// look compares the leases of one name with each other. One that says it lasts before
// and after the other says so has lasted beside it.
func (p *play) look() {
	name := anyName()
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held[name]
	for i, a := range held {
		for _, b := range held[i+1:] {
			if !a.excludes(b) {
				continue
			}
			p.looks.Add(1)
			if a.Err() == nil && b.Err() == nil && a.Err() == nil {
				p.t.Errorf("%s: leases of tokens %d (shared: %t, entry: %t) and %d (shared: %t, entry: %t) last together",
					name, a.Token(), a.shared, a.parent != nil, b.Token(), b.shared, b.parent != nil)
			}
		}
	}
}

// excludes reports whether a and b must not last together: where their ways to the
// lease that took the lock part, one of the two is exclusive.
func (a *played) excludes(b *played) bool {
	wayA, wayB := a.way(), b.way()
	for len(wayA) > 0 && len(wayB) > 0 && wayA[0] == wayB[0] {
		wayA, wayB = wayA[1:], wayB[1:]
	}
	if len(wayA) == 0 || len(wayB) == 0 {
		return false // one was made under the other
	}
	return !wayA[0].shared || !wayB[0].shared
}

func (a *played) way() []*played {
	if a.parent == nil {
		return []*played{a}
	}
	return append(a.parent.way(), a)
}

// free takes each lock with a new client: nothing stays.
func (p *play) free() {
	c, err := dlock.New(p.open(), &dlock.Options{TTL: playTTL})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range playNames {
		lease, err := c.Mutex(name).Lock(ctx)
		if err != nil {
			p.t.Errorf("%s stays locked: %v", name, err)
			continue
		}
		_ = lease.Unlock(ctx)
	}
	if err := c.Close(ctx); err != nil {
		p.t.Error(err)
	}
}
