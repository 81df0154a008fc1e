package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// backendOf returns a backend over the servers, to ask it what a Client does not.
func (s nodes) backendOf(t *testing.T) *quorum.Backend {
	t.Helper()
	return s.backendWith(t, &quorum.Options{MaxTTL: ttl, Skew: skew})
}

func (s nodes) backendWith(t *testing.T, o *quorum.Options) *quorum.Backend {
	t.Helper()
	var all []backend.Backend
	for _, server := range s {
		all = append(all, memory.New(server))
	}
	b, err := quorum.New(all, o)
	ok(t, err)
	t.Cleanup(func() { ok(t, b.Close(context.Background())) })
	return b
}

// A minority of the nodes, whether it is away or has something else to say, changes
// nothing in what the quorum says.
func TestInspect(t *testing.T) {
	for name, harm := range map[string]func(s nodes){
		"all well": func(nodes) {},
		"one away": func(s nodes) { s[1].Freeze() },
		"one new":  func(s nodes) { s[0].Wipe() },
	} {
		t.Run(name, func(t *testing.T) {
			ripe(t, 3, func(t *testing.T, s nodes) {
				a, other, asks := s.open(t, nil), s.open(t, nil), s.backendOf(t)
				l := a.lock("x")
				synctest.Wait() // all nodes have granted
				defer s.thaw()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, err := other.RWMutex("x").RLock(ctx)
					is(t, err, dlock.ErrHeld)
				}()
				time.Sleep(time.Second)
				harm(s)
				time.Sleep(time.Second) // whoever queued at that node moves on
				got, err := asks.Inspect(t.Context(), "x")
				ok(t, err)
				must(t, len(got.Holders) == 1 && len(got.Waiters) == 1, "%+v", got)
				h, w := got.Holders[0], got.Waiters[0]
				must(t, h.Token == l.Token() && h.Mode == backend.Exclusive && h.Entries == 1 && h.Left > 0 && h.Client != w.Client && w.Mode == backend.Shared, "%+v", got)
				names := namesOf(t, asks)
				must(t, slices.Equal(names, []string{"x"}), "names %q", names)
				cancel()
				s.thaw()
				<-done
				a.unlock(l)
			})
		})
	}
}

// A node with a long list needs long to tell it.
type longList struct{ *memory.Backend }

func (n longList) Inspect(ctx context.Context, name string) (backend.Snapshot, error) {
	if !backend.Sleep(ctx, 2*time.Second) {
		return backend.Snapshot{}, context.Cause(ctx)
	}
	return n.Backend.Inspect(ctx, name)
}

// The node where all others queue has the longest answer. It is waited for, unless the node
// is gone by then.
func TestInspectOfALongQueue(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, other := s.open(t, nil), s.open(t, nil)
		l := a.lock("x")
		synctest.Wait() // all nodes have granted
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := other.Mutex("x").Lock(ctx)
			done <- err
		}()
		time.Sleep(time.Second)
		front := slices.IndexFunc(s, func(n *memory.Server) bool { return n.Waiting("x") > 0 })
		var all []backend.Backend
		for i := range s {
			all = append(all, memory.New(s[i]))
		}
		all[front] = longList{memory.New(s[front])}
		asks, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		got, err := asks.Inspect(t.Context(), "x")
		ok(t, err)
		must(t, len(got.Holders) == 1 && len(got.Waiters) == 1, "%+v", got)
		s[front].Freeze()
		start := time.Now()
		_, err = asks.Inspect(t.Context(), "x")
		ok(t, err)
		must(t, time.Since(start) < time.Second, "it took %v", time.Since(start))
		s.thaw()
		cancel()
		is(t, <-done, dlock.ErrHeld)
		a.unlock(l)
		ok(t, asks.Close(t.Context()))
	})
}

func TestInspectNeedsAMajority(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		b := s.backendOf(t)
		s.freeze(2)
		defer s.thaw()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Inspect(ctx, "x")
		is(t, err, backend.ErrUnavailable)
		_, err = b.Ping(ctx)
		is(t, err, backend.ErrUnavailable)
		is(t, b.Break(ctx, "x", 1), backend.ErrUnavailable)
	})
}

// Whoever holds the lock learns that it was broken, and the next one gets it.
func TestBreak(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		a, other, asks := s.open(t, nil), s.open(t, nil), s.backendOf(t)
		_, err := asks.Ping(t.Context())
		ok(t, err)
		is(t, asks.Break(t.Context(), "x", 1), backend.ErrNotHeld)
		l := a.lock("x")
		next := make(chan *dlock.Lease)
		go func() { next <- other.lock("x") }()
		synctest.Wait()
		is(t, asks.Break(t.Context(), "x", l.Token()+1), backend.ErrNotHeld)
		ok(t, l.Err())
		s[2].Freeze() // it keeps its part of the hold until that runs out
		// Its holder may hear of the first part that is ended, and give back the second before that is asked:
		// then nobody can say whether the silent node has one.
		if err := asks.Break(t.Context(), "x", l.Token()); err != nil {
			is(t, err, backend.ErrUnavailable)
		}
		second := <-next
		s.thaw()
		must(t, second.Token() > l.Token(), "token %d after %d", second.Token(), l.Token())
		<-l.Done()
		is(t, l.Err(), dlock.ErrLost)
		must(t, errors.Is(l.Err(), backend.ErrBroken), "cause of the loss: %v", l.Err())
		ok(t, second.Err())
		other.unlock(second)
	})
}

// A hold is broken by its token whichever node has offered it, or a greater one, and
// whichever node is silent. No other token breaks it.
func TestBreakWithUnequalTokens(t *testing.T) {
	for ahead := range 3 {
		for silent := range 3 {
			t.Run(fmt.Sprintf("node %d ahead, node %d silent", ahead, silent), func(t *testing.T) {
				ripe(t, 3, func(t *testing.T, s nodes) {
					asks, a := s.backendOf(t), s.open(t, nil)
					older := a.lock("x")
					stale := older.Token()
					a.unlock(older)
					time.Sleep(time.Millisecond)
					s.raise(t, ahead, 50*time.Millisecond)
					l := a.lock("x")
					synctest.Wait() // all nodes know it by its token
					defer s.thaw()
					s[silent].Freeze()
					for _, token := range []uint64{stale, l.Token() + 1_000_000} {
						is(t, asks.Break(t.Context(), "x", token), backend.ErrNotHeld)
					}
					ok(t, asks.Break(t.Context(), "x", l.Token()))
					s.thaw()
					<-l.Done()
					is(t, l.Err(), dlock.ErrLost)
				})
			})
		}
	}
}

// A hold that is left on one node, because another that has it is silent, is told of: it may be
// held. Whoever breaks it ends it, and is told that it may go on at the silent one.
func TestInspectWhatMayBeHeld(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		asks, alone, a := s.backendOf(t), memory.New(s[0]), s.open(t, nil)
		l := a.lock("x")
		granted := make(chan *backend.Hold)
		go func() {
			h, err := alone.Acquire(t.Context(), backend.Request{Name: "x", TTL: 6 * ttl, Label: "alone", Wait: true})
			ok(t, err)
			granted <- h
		}()
		synctest.Wait()
		s[0].Evict("x")
		h := <-granted
		s[2].Freeze()
		defer s.thaw()
		got, err := asks.Inspect(t.Context(), "x")
		ok(t, err)
		isOurs := func(p backend.Party) bool { return p.Token == l.Token() && p.Label == "" && p.Left > 0 }
		must(t, slices.ContainsFunc(got.Holders, isOurs), "%+v", got)
		names := namesOf(t, asks)
		must(t, slices.Equal(names, []string{"x"}), "names %q", names)
		is(t, asks.Break(t.Context(), "x", l.Token()), backend.ErrUnavailable)
		ok(t, alone.Release(t.Context(), h))
		s.thaw()
		<-l.Done()
		is(t, l.Err(), dlock.ErrLost)
		ok(t, alone.Close(t.Context()))
	})
}

// A client that holds the lock may have one more request waiting, with the same label and
// mode: that is a waiter, whether or not a minority of the nodes has its hold.
func TestInspectShowsTheHoldersOtherRequest(t *testing.T) {
	for name, harm := range map[string]func(s nodes){
		"all well": func(nodes) {},
		"one away": func(s nodes) { s[1].Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			ripe(t, 3, func(t *testing.T, s nodes) {
				b := s.backendOf(t)
				request := func(seq uint64) backend.Request {
					return backend.Request{Name: "x", ID: backend.ID{Client: "c", Seq: seq}, Label: "l", Mode: backend.Exclusive, TTL: ttl, Wait: seq > 1}
				}
				h, err := b.Acquire(t.Context(), request(1))
				ok(t, err)
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, err := b.Acquire(ctx, request(2))
					is(t, err, backend.ErrHeld)
				}()
				time.Sleep(time.Second)
				harm(s)
				defer s.thaw()
				got, err := b.Inspect(t.Context(), "x")
				ok(t, err)
				must(t, len(got.Holders) == 1 && len(got.Waiters) == 1, "%+v", got)
				cancel()
				s.thaw()
				<-done
				ok(t, b.Release(t.Context(), h))
			})
		})
	}
}

// raise makes the tokens of one node run ahead of its clock.
func (s nodes) raise(t *testing.T, node int, by time.Duration) {
	t.Helper()
	m := memory.New(s[node])
	h, err := m.Vote(t.Context(), backend.Request{Name: "ahead", TTL: ttl}, backend.Ballot{Token: uint64(time.Now().Add(by).UnixMicro())})
	ok(t, err)
	ok(t, m.Release(t.Context(), h))
	ok(t, m.Close(t.Context()))
}

// One node already has the next hold of a client whose last one is still being released at
// the others. Break with the token of the last one spares the next.
func TestBreakSparesTheNextHold(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		asks := s.backendOf(t)
		last := uint64(time.Now().Add(20 * time.Millisecond).UnixMicro())
		vote := func(node int, seq, token uint64) (*memory.Backend, *backend.Hold) {
			m := memory.New(s[node])
			r := backend.Request{Name: "x", TTL: ttl, ID: backend.ID{Client: "c", Seq: seq}}
			h, err := m.Vote(t.Context(), r, backend.Ballot{Token: token, Rejoin: ttl})
			ok(t, err)
			must(t, h.Token == token, "token %d, want %d", h.Token, token)
			t.Cleanup(func() { ok(t, m.Close(context.Background())) })
			return m, h
		}
		m0, h0 := vote(0, 1, last)
		m1, h1 := vote(1, 1, last)
		m2, next := vote(2, 2, last+1)
		ok(t, asks.Break(t.Context(), "x", last+1)) // whom it is granted to there asks again
		is(t, m2.Release(t.Context(), next), backend.ErrLost)
		_, next = vote(2, 3, last+2)
		ok(t, asks.Break(t.Context(), "x", last))
		is(t, m0.Release(t.Context(), h0), backend.ErrLost)
		is(t, m1.Release(t.Context(), h1), backend.ErrLost)
		is(t, asks.Break(t.Context(), "x", last), backend.ErrNotHeld)
		ok(t, m2.Release(t.Context(), next))
	})
}

// breaksLate is a node that Break reaches late.
type breaksLate struct{ *memory.Backend }

func (n breaksLate) Break(ctx context.Context, name string, token uint64) error {
	time.Sleep(10 * time.Millisecond)
	return n.Backend.Break(ctx, name, token)
}

// Two break a hold of a bare majority at the same moment, and each of them ends one part of
// it: nobody else has ended the hold, so they are told that they have.
func TestBreakByTwo(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		lost := make(chan error, 1)
		h, err := s.backendOf(t).Acquire(t.Context(), backend.Request{Name: "x", TTL: ttl, Mode: backend.Exclusive, Observer: lossObserver{lost}})
		ok(t, err)
		synctest.Wait()
		s[2].Evict("x")
		var breaking sync.WaitGroup
		for i := range 2 {
			all := []backend.Backend{memory.New(s[0]), memory.New(s[1]), memory.New(s[2])}
			all[1-i] = breaksLate{all[1-i].(*memory.Backend)}
			b, err := quorum.New(all, &quorum.Options{MaxTTL: ttl, Skew: skew})
			ok(t, err)
			breaking.Go(func() {
				if err := b.Break(t.Context(), "x", h.Token); err != nil {
					t.Errorf("who has ended the part of node %d is told %v", i, err)
				}
				if err := b.Break(t.Context(), "x", h.Token); !errors.Is(err, backend.ErrNotHeld) {
					t.Errorf("what has been broken was broken again: %v", err)
				}
				if err := b.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		breaking.Wait()
		is(t, <-lost, backend.ErrBroken)
		s.empty(t)
	})
}

// A node that was away joins a hold, and its own tokens are ahead of that of the hold. It
// counts, and Break finds the hold by its token and no other wherever it has a part.
func TestBreakWhatNodesHaveJoined(t *testing.T) {
	for _, lock := range []func(*dlock.RWMutex, context.Context) (*dlock.Lease, error){(*dlock.RWMutex).Lock, (*dlock.RWMutex).RLock} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			asks, a, b := s.backendOf(t), s.open(t, nil), s.open(t, nil)
			l, err := lock(a.RWMutex("x"), t.Context())
			ok(t, err)
			for i := range s { // each of them forgets it, and joins it again
				synctest.Wait()
				s[i].Evict("x")
				time.Sleep(ttl)
			}
			for i := range s {
				is(t, memory.New(s[i]).Break(t.Context(), "x", l.Token()+1), backend.ErrNotHeld)
				got, err := memory.New(s[i]).Inspect(t.Context(), "x")
				ok(t, err)
				must(t, len(got.Holders) == 1 && got.Holders[0].Token == l.Token(), "node %d: %+v, want token %d", i, got, l.Token())
			}
			s[2].Freeze()
			ok(t, l.Err())
			ok(t, asks.Break(t.Context(), "x", l.Token()))
			<-l.Done()
			is(t, l.Err(), backend.ErrBroken)
			s.thaw()
			b.unlock(b.lock("x"))
			s.empty(t)
		})
	}
}

// Readers who came at different times may have different tokens. Each is broken by its own.
func TestBreakOneReader(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		asks, a, b := s.backendOf(t), s.open(t, nil), s.open(t, nil)
		s[2].Freeze()
		first, err := a.RWMutex("x").RLock(t.Context())
		ok(t, err)
		time.Sleep(100 * time.Millisecond)
		s.thaw()
		time.Sleep(100 * time.Millisecond)
		s[0].Freeze()
		second, err := b.RWMutex("x").RLock(t.Context())
		ok(t, err)
		s.thaw()
		time.Sleep(ttl)
		must(t, first.Token() < second.Token(), "tokens %d and %d", first.Token(), second.Token())
		ok(t, asks.Break(t.Context(), "x", second.Token()))
		<-second.Done()
		time.Sleep(ttl)
		ok(t, first.Err())
		ok(t, asks.Break(t.Context(), "x", first.Token()))
		<-first.Done()
		is(t, first.Err(), backend.ErrBroken)
		s.empty(t)
	})
}

// Where all nodes are needed, each knows a hold by a token of its own, and the greatest of
// them is the hold's: Inspect shows it, and Break with it, and with no other, ends the hold.
func TestBreakWhereAllNodesAreNeeded(t *testing.T) {
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		for ahead := range 3 {
			in(t, 3, func(t *testing.T, s nodes) {
				s[ahead].SetClock(time.Minute)
				b := s.backendWith(t, &quorum.Options{Need: 3})
				lost := make(chan error, 1)
				h, err := b.Acquire(t.Context(), backend.Request{
					Name: "x", ID: backend.ID{Client: "c"}, Mode: mode, TTL: ttl, Observer: lossObserver{lost},
				})
				ok(t, err)
				got, err := b.Inspect(t.Context(), "x")
				ok(t, err)
				must(t, len(got.Holders) == 1 && got.Holders[0].Token == h.Token, "%+v, want token %d", got, h.Token)
				for i := range s {
					if part, err := memory.New(s[i]).Inspect(t.Context(), "x"); i != ahead {
						ok(t, err)
						is(t, b.Break(t.Context(), "x", part.Holders[0].Token), backend.ErrNotHeld)
					}
				}
				ok(t, b.Break(t.Context(), "x", h.Token))
				is(t, <-lost, backend.ErrBroken)
				s.empty(t)
			})
		}
	}
}

// A lossObserver passes on why a hold was lost.
type lossObserver struct{ lost chan error }

func (lossObserver) Queued()          {}
func (o lossObserver) Lost(why error) { o.lost <- why }
func (lossObserver) Wanted()          {}

// namesOf lists what Names yields.
func namesOf(t *testing.T, b interface {
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]
}) (names []string) {
	t.Helper()
	for name, err := range b.Names(t.Context(), "") {
		ok(t, err)
		names = append(names, name)
	}
	return names
}

// A name that one node has not forgotten yet is not listed because another node is slower
// than the rest.
func TestNamesWithASlowNode(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		late := memory.New(s[0])
		h, err := late.Acquire(t.Context(), backend.Request{Name: "x", TTL: ttl})
		ok(t, err)
		links := make([]backend.Backend, len(s))
		for i := range s {
			links[i] = memory.New(s[i])
		}
		b, err := quorum.New(links, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		links[1].(*memory.Backend).Delay(400 * time.Millisecond)
		names := namesOf(t, b)
		must(t, len(names) == 0, "names %q", names)
		links[1].(*memory.Backend).Cut() // now it may have the name
		names = namesOf(t, b)
		must(t, slices.Equal(names, []string{"x"}), "names %q", names)
		links[1].(*memory.Backend).Heal()
		ok(t, late.Release(t.Context(), h))
		ok(t, late.Close(t.Context()))
		ok(t, b.Close(t.Context()))
	})
}

// Two nodes that are cut off take as long as one.
func TestNamesWithTwoNodesCutOff(t *testing.T) {
	ripe(t, 5, func(t *testing.T, s nodes) {
		links := make([]backend.Backend, len(s))
		for i := range s {
			links[i] = memory.New(s[i])
		}
		b, err := quorum.New(links, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		var took [2]time.Duration
		for i := range took {
			links[i].(*memory.Backend).Cut()
			began := time.Now()
			namesOf(t, b)
			took[i] = time.Since(began)
		}
		must(t, took[0] == took[1], "one node: %v, two: %v", took[0], took[1])
		ok(t, b.Close(context.Background()))
	})
}

// breaksOff is a node whose list of names ends with an error.
type breaksOff struct{ *memory.Backend }

func (breaksOff) Names(context.Context, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", backend.ErrUnavailable) }
}

// A name that is held is listed, and once, though a node that has it breaks off.
func TestNamesWithANodeThatBreaksOff(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		holder := s.open(t, nil)
		all := holder.lock("y") // of all nodes
		holder.cut(1)
		l := holder.lock("x") // of the second and the third node
		b, err := quorum.New([]backend.Backend{memory.New(s[0]), memory.New(s[1]), breaksOff{memory.New(s[2])}}, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		names := namesOf(t, b)
		slices.Sort(names)
		must(t, slices.Equal(names, []string{"x", "y"}), "names %q", names)
		ok(t, b.Close(t.Context()))
		holder.heal()
		holder.unlock(l)
		holder.unlock(all)
	})
}

// brokenOnce is a node to which the connection has broken since it was used.
type brokenOnce struct {
	*memory.Backend
	noticed *bool
}

func (b brokenOnce) Ping(ctx context.Context) (string, error) {
	if !*b.noticed {
		*b.noticed = true
		return "", backend.ErrUnavailable
	}
	return b.Backend.Ping(ctx)
}

// Connections that have broken unnoticed, to more nodes than can be away, do not make Names fail.
func TestNamesOverBrokenConnections(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		holder := s.open(t, nil)
		l := holder.lock("x")
		var noticed [2]bool
		b, err := quorum.New([]backend.Backend{
			brokenOnce{memory.New(s[0]), &noticed[0]}, brokenOnce{memory.New(s[1]), &noticed[1]}, memory.New(s[2]),
		}, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		names := namesOf(t, b)
		must(t, slices.Equal(names, []string{"x"}), "names %q", names)
		ok(t, b.Close(t.Context()))
		holder.unlock(l)
	})
}

// A connection that has broken unnoticed does not make Names wait for a node that hangs.
func TestNamesWhileANodeHangs(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		holder := s.open(t, nil)
		l := holder.lock("x")
		var noticed bool
		b, err := quorum.New([]backend.Backend{
			brokenOnce{memory.New(s[0]), &noticed}, memory.New(s[1]), memory.New(s[2]),
		}, &quorum.Options{MaxTTL: ttl, Skew: skew})
		ok(t, err)
		s[2].Freeze()
		began := time.Now()
		names := namesOf(t, b)
		must(t, slices.Equal(names, []string{"x"}), "names %q", names)
		must(t, time.Since(began) < 2*time.Second, "it took %v", time.Since(began))
		s.thaw()
		ok(t, b.Close(t.Context()))
		holder.unlock(l)
	})
}

// A node that hangs is waited for no longer because it has been slow.
func TestNamesWhileANodeHangsThatWasSlow(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		holder := s.open(t, nil)
		l := holder.lock("x")
		links := []backend.Backend{memory.New(s[0]), memory.New(s[1]), memory.New(s[2])}
		c := over(t, links, nil)
		links[2].(*memory.Backend).Delay(900 * time.Millisecond)
		for i := range 20 {
			once, err := c.Mutex(fmt.Sprint(i)).Lock(t.Context())
			ok(t, err)
			time.Sleep(5 * time.Second)
			ok(t, once.Unlock(t.Context()))
		}
		s[2].Freeze()
		began := time.Now()
		names := namesOf(t, c)
		must(t, slices.Equal(names, []string{"x"}), "names %q", names)
		must(t, time.Since(began) < 3*time.Second, "it took %v", time.Since(began))
		s.thaw()
		holder.unlock(l)
	})
}

// lateToNotice is a node whose connection ends with the deadline of the context, which has
// no error yet.
type lateToNotice struct{ *memory.Backend }

func (lateToNotice) Ping(ctx context.Context) (string, error) {
	at, _ := ctx.Deadline()
	time.Sleep(time.Until(at))
	return "", backend.Fail(backend.ErrUnavailable, os.ErrDeadlineExceeded)
}

// Who gives no time for an answer is told so.
func TestPingSaysThatTheTimeIsOver(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		var all []backend.Backend
		for i := range s {
			all = append(all, lateToNotice{memory.New(s[i])})
		}
		b, err := quorum.New(all, nil)
		ok(t, err)
		for range 100 { // which of them notices first is a matter of chance
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err = b.Ping(ctx)
			cancel()
			is(t, err, backend.ErrUnavailable)
			is(t, err, context.DeadlineExceeded)
		}
		ok(t, b.Close(t.Context()))
	})
}
