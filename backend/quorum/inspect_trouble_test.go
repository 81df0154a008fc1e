package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// links are a backend of each node, for a quorum of a test's own.
func (s nodes) links() []backend.Backend {
	all := make([]backend.Backend, len(s))
	for i := range s {
		all[i] = memory.New(s[i])
	}
	return all
}

// pingsAlone is a node that answers pings and never says who has a lock: its long answers get
// lost on the way.
type pingsAlone struct{ *memory.Backend }

func (pingsAlone) Inspect(ctx context.Context, _ string) (backend.Snapshot, error) {
	<-ctx.Done()
	return backend.Snapshot{}, backend.WaitEnded(ctx, false)
}

// What a majority says is told although another node answers nothing but pings.
func TestInspectWhereANodeAnswersPingsAlone(t *testing.T) {
	for i := range 3 {
		ripe(t, 3, func(t *testing.T, s nodes) {
			a := s.open(t, nil)
			l := a.lock("x")
			synctest.Wait()
			all := s.links()
			all[i] = pingsAlone{memory.New(s[i])}
			c := over(t, all, nil)
			start := time.Now()
			got, err := c.Inspect(t.Context(), "x")
			if err != nil || len(got.Holders) != 1 {
				t.Errorf("node %d answers pings alone: %+v, %v, after %v", i, got, err, time.Since(start))
			}
			a.unlock(l)
		})
	}
}

// Any number of nodes that hang take as long as one.
func TestInspectWithNodesThatHang(t *testing.T) {
	for _, n := range []int{5, 7, 13} {
		ripe(t, n, func(t *testing.T, s nodes) {
			a := s.open(t, nil)
			l := a.lock("x")
			synctest.Wait()
			var took [2]time.Duration
			for i, frozen := range []int{1, n / 2} {
				s.freeze(frozen)
				c := over(t, s.links(), nil)
				start := time.Now()
				got, err := c.Inspect(t.Context(), "x")
				took[i] = time.Since(start)
				if err != nil || len(got.Holders) != 1 {
					t.Errorf("%d of %d nodes hang: %+v, %v", frozen, n, got, err)
				}
				s.thaw()
			}
			if took[0] != took[1] {
				t.Errorf("of %d nodes one that hangs: %v, %d: %v", n, took[0], n/2, took[1])
			}
			a.unlock(l)
		})
	}
}

// Who looks at lock after lock does not wait for a node that hangs each time.
func TestInspectAgainWhileANodeHangs(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		c := over(t, s.links(), nil)
		for range 2 { // it knows how far the nodes are
			_, err := c.Inspect(t.Context(), "x")
			ok(t, err)
		}
		s.freeze(1)
		const looks = 40
		start := time.Now()
		for range looks {
			_, err := c.Inspect(t.Context(), "x")
			ok(t, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%d looks took %v", looks, took)
		}
		s.thaw()
		a.unlock(l)
	})
}

// amongOthers is a node with many keys of others: it says nothing of them, and takes its time.
type amongOthers struct {
	*memory.Backend
	pages int
}

func (n amongOthers) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for range n.pages {
			backend.Rest(ctx, backend.MaxRest, backend.MaxRest)
			if ctx.Err() != nil {
				yield("", backend.WaitEnded(ctx, false))
				return
			}
		}
		for name, err := range n.Backend.Names(ctx, prefix) {
			if !yield(name, err) {
				return
			}
		}
	}
}

// Nodes that look through many keys without a lock to find the next name are not given up.
func TestNamesAmongManyOtherKeys(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		all := s.links()
		for i := range all {
			all[i] = amongOthers{memory.New(s[i]), 100}
		}
		b, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		names := namesOf(t, b)
		if !slices.Contains(names, "x") {
			t.Errorf("names %q", names)
		}
		ok(t, b.Close(t.Context()))
		a.unlock(l)
	})
}

// twice is a node that names each lock twice, as an Inspector may.
type twice struct{ *memory.Backend }

func (n twice) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for range 2 {
			for name, err := range n.Backend.Names(ctx, prefix) {
				if !yield(name, err) {
					return
				}
			}
		}
	}
}

// A name that one node alone has is not listed because that node names it twice.
func TestNamesThatOneNodeHasTwice(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		alone := memory.New(s[0])
		h, err := alone.Acquire(t.Context(), backend.Request{Name: "x", TTL: ttl})
		ok(t, err)
		all := s.links()
		all[0] = twice{memory.New(s[0])}
		b, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		if names := namesOf(t, b); len(names) > 0 {
			t.Errorf("names %q", names)
		}
		ok(t, alone.Release(t.Context(), h))
		ok(t, alone.Close(t.Context()))
		ok(t, b.Close(t.Context()))
	})
}

// A hold that one of its two nodes has downgraded, and the other not yet, is one hold.
func TestInspectDuringADowngrade(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, asks := s.open(t, nil), s.backendOf(t)
		a.cut(1)
		l, err := a.RWMutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait()
		a.links[1].Cut()
		done := make(chan error, 1)
		go func() { done <- l.Downgrade(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		got, err := asks.Inspect(t.Context(), "x")
		ok(t, err)
		if len(got.Holders) != 1 || got.Holders[0].Mode != backend.Exclusive || got.Holders[0].Token != l.Token() {
			t.Errorf("while one of two nodes has downgraded: %+v", got)
		}
		ok(t, l.Err())
		a.heal()
		ok(t, <-done)
		a.unlock(l)
	})
}

// breaksWhenTold is a node that Break reaches when told.
type breaksWhenTold struct {
	*memory.Backend
	now chan struct{}
}

func (n breaksWhenTold) Break(ctx context.Context, name string, token uint64) error {
	<-n.now
	return n.Backend.Break(ctx, name, token)
}

// Whoever is told that the hold was broken can rely on it, although one node was away and
// another has joined the hold just after it was asked.
func TestBreakWhileANodeJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		time.Sleep(time.Second)
		s[2].Evict("x")
		time.Sleep(2 * time.Second)
		all := s.links()
		away := memory.New(s[0])
		away.Cut()
		now := make(chan struct{})
		all[0], all[1] = away, breaksWhenTold{memory.New(s[1]), now}
		b, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		broken := make(chan error, 1)
		go func() { broken <- b.Break(t.Context(), "x", l.Token()) }()
		joined := memory.New(s[2])
		for {
			got, err := joined.Inspect(t.Context(), "x")
			ok(t, err)
			if len(got.Holders) == 1 && got.Holders[0].Token == l.Token() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		close(now)
		ok(t, <-broken)
		time.Sleep(ttl)
		if !errors.Is(l.Err(), backend.ErrBroken) {
			t.Errorf("the hold that was broken: %v", l.Err())
		}
		_ = l.Unlock(t.Context())
		ok(t, b.Close(context.Background()))
	})
}

// A client that is asked in every state leaves nothing when it is closed. The bubble fails if
// a goroutine stays.
func TestAskedWhileClosing(t *testing.T) {
	for _, frozen := range []int{0, 1, 2, 3} {
		for _, after := range []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(frozen, " frozen, ", after), func(t *testing.T) {
				ripe(t, 3, func(t *testing.T, s nodes) {
					s.freeze(frozen)
					b, err := quorum.New(s.links(), &quorum.Options{MaxTTL: ttl, Skew: skew})
					ok(t, err)
					c, err := dlock.New(b, nil)
					ok(t, err)
					done := make(chan error, 4)
					go func() { _, err := c.Inspect(t.Context(), "x"); done <- err }()
					go func() { done <- c.Ping(t.Context()) }()
					go func() { done <- c.Break(t.Context(), "x", 1) }()
					go func() {
						var last error
						for _, err := range c.Names(t.Context(), "") {
							last = err
						}
						done <- last
					}()
					time.Sleep(after)
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					start := time.Now()
					err = c.Close(ctx)
					t.Log("close", err, time.Since(start))
					for range 4 {
						err := <-done
						t.Log(err)
						if time.Since(start) > 1500*time.Millisecond {
							t.Error("after", time.Since(start), err)
						}
					}
					_, err = c.Inspect(t.Context(), "x")
					is(t, err, dlock.ErrClosed)
					is(t, c.Break(t.Context(), "x", 1), dlock.ErrClosed)
					for _, err := range c.Names(t.Context(), "") {
						is(t, err, dlock.ErrClosed)
					}
					s.thaw()
				})
			})
		}
	}
}

// mute is what a node has that does not answer.
const mute = math.MaxUint64

// tells is a node that says what it is given, look after look, and then the last again.
type tells struct {
	*memory.Backend
	tokens []uint64 // of its holder; 0: there is none, mute: it does not answer
	looks  int
}

func (n *tells) Inspect(context.Context, string) (s backend.Snapshot, err error) {
	token := n.tokens[min(n.looks, len(n.tokens)-1)]
	n.looks++
	switch token {
	case mute:
		return s, backend.ErrUnavailable
	case 0:
	default:
		s.Holders = []backend.Party{{Client: fmt.Sprint(token), Mode: backend.Exclusive, Token: token}}
	}
	return s, nil
}

// A lock that changes hands while the nodes are asked has a holder all the same. What one node
// has forgotten to end is looked at twice, and so is who may have it alone, or another, as a node is away.
func TestInspectWhileALockChangesHands(t *testing.T) {
	for name, c := range map[string]struct {
		tokens  [3][]uint64
		looks   int
		holders int
	}{
		"held":               {[3][]uint64{{1}, {1}, {1}}, 1, 1},
		"free":               {[3][]uint64{{0}, {0}, {0}}, 1, 0},
		"at one node":        {[3][]uint64{{1}, {0}, {0}}, 2, 0},
		"changes hands":      {[3][]uint64{{1, 4, 5}, {2, 4, 5}, {3, 6, 5}}, 2, 1},
		"changes hands anew": {[3][]uint64{{1, 4, 7}, {2, 5, 7}, {3, 6, 7}}, 3, 1},
		"one is away":        {[3][]uint64{{1}, {1}, {mute}}, 1, 1},
		"changes, one away":  {[3][]uint64{{1, 3}, {2, 3}, {mute}}, 2, 1},
		"old part, one away": {[3][]uint64{{1}, {2}, {mute}}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, 3, func(t *testing.T, s nodes) {
				all := s.links()
				for i := range all {
					all[i] = &tells{memory.New(s[i]), c.tokens[i], 0}
				}
				b, err := quorum.New(all, nil)
				ok(t, err)
				got, err := b.Inspect(t.Context(), "x")
				ok(t, err)
				if looks := all[0].(*tells).looks; len(got.Holders) != c.holders || looks != c.looks {
					t.Errorf("%d holders after %d looks, want %d and %d", len(got.Holders), looks, c.holders, c.looks)
				}
				ok(t, b.Close(t.Context()))
			})
		})
	}
}

// namesInTime is a node that tells of names while it is asked, or says nothing to that.
type namesInTime struct {
	*memory.Backend
	silent bool
}

func (n namesInTime) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if n.silent {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			yield("", backend.WaitEnded(ctx, false))
			return
		}
		n.Backend.Names(ctx, prefix)(yield)
	}
}

// Each node that falls silent while names are listed has its own time.
func TestNamesWhereNodesFallSilent(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		var all []backend.Backend
		for i := range s {
			all = append(all, namesInTime{memory.New(s[i]), i < 2})
		}
		names := namesOf(t, over(t, all, nil))
		if !slices.Equal(names, []string{"x"}) {
			t.Errorf("%q", names)
		}
		a.unlock(l)
	})
}

// pingHangsOnce is a node to which something on the way has forgotten a connection: what is sent there
// first has no answer.
type pingHangsOnce struct {
	namesInTime
	sent *atomic.Bool
}

func (n pingHangsOnce) Ping(ctx context.Context) (string, error) {
	if n.sent.Swap(true) {
		return n.namesInTime.Ping(ctx)
	}
	<-ctx.Done()
	time.Sleep(time.Millisecond) // until the connection is given up
	return "", backend.WaitEnded(ctx, false)
}

// A ping that hangs, at a node that is there, leaves Names the time to ask the others.
func TestNamesWhereAPingHangs(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a := s.open(t, nil)
		l := a.lock("x")
		synctest.Wait()
		var all []backend.Backend
		for i := range s {
			all = append(all, namesInTime{memory.New(s[i]), false})
		}
		all[1] = pingHangsOnce{all[1].(namesInTime), new(atomic.Bool)}
		names := namesOf(t, over(t, all, nil))
		if !slices.Equal(names, []string{"x"}) {
			t.Errorf("%q", names)
		}
		a.unlock(l)
	})
}

// Nodes were away, one after the other, and answer again. Who has only asked since does not go without the answer
// of that at which others wait.
func TestInspectNodesThatWereAway(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		front := s.front("x")
		far := []int{front, (front + 1) % len(s)}
		c, holder, waiter := s.open(t, nil), s.open(t, nil), s.open(t, nil)
		for _, i := range far {
			c.links[i].Delay(10 * time.Millisecond)
		}
		l := holder.lock("x")
		got := make(chan error)
		go func() { got <- dlock.Do(t.Context(), waiter.Mutex("x"), nothing) }()
		inspect := func() int {
			found, err := c.Inspect(t.Context(), "x")
			ok(t, err)
			time.Sleep(5 * time.Second)
			return len(found.Waiters)
		}
		for _, i := range far {
			inspect()
			c.links[i].Cut()
			inspect()
			c.links[i].Heal()
			time.Sleep(time.Minute)
		}
		if n := inspect(); n != 1 {
			t.Errorf("%d wait, and 1 is shown by the front", n)
		}
		holder.unlock(l)
		ok(t, <-got)
	})
}
