package quorum_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A countedNode counts the re-entries that it has been told of and has not answered.
type countedNode struct {
	*memory.Backend
	open atomic.Int64
}

func (n *countedNode) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	n.open.Add(1)
	defer n.open.Add(-1)
	return n.Backend.Reenter(ctx, h, entries, seq)
}

// A node that hangs, of a lock that is entered again and again, is told of the last entry alone,
// and learns of that when it answers.
func TestEntriesWhileANodeHangs(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		node := &countedNode{Backend: memory.New(s[0])}
		all := s.links()
		all[0] = node
		c := over(t, all, nil)
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		synctest.Wait() // all nodes have granted
		s.freeze(1)
		enter := c.Mutex("x")
		for range 100 {
			in, err := enter.Lock(l.Context(t.Context()))
			ok(t, err)
			ok(t, in.Unlock(t.Context()))
		}
		in, err := enter.Lock(l.Context(t.Context()))
		ok(t, err)
		synctest.Wait()
		if n := node.open.Load(); n != 1 {
			t.Errorf("a node that hangs is being told of %d entries", n)
		}
		s.thaw()
		time.Sleep(time.Second) // it is told again by then
		got, err := memory.New(s[0]).Inspect(t.Context(), "x")
		ok(t, err)
		if len(got.Holders) != 1 || got.Holders[0].Entries != 2 {
			t.Errorf("the node that hung knows %+v", got.Holders)
		}
		ok(t, in.Unlock(t.Context()))
		ok(t, l.Unlock(t.Context()))
	})
}

// A farVoter votes late, and a barred one denies to count entries.
type farVoter struct {
	*memory.Backend
	late time.Duration
}

func (n *farVoter) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	time.Sleep(n.late)
	return n.Backend.Vote(ctx, r, v)
}

// withLateThird returns a client that all nodes have answered, and of which the third votes late from
// then on. It knows the second as that backend.
func (s nodes) withLateThird(t *testing.T, second backend.Backend) (*dlock.Client, *farVoter) {
	t.Helper()
	late := &farVoter{Backend: memory.New(s[2])}
	c := over(t, []backend.Backend{memory.New(s[0]), second, late}, nil)
	ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
	synctest.Wait()
	late.late = 40 * time.Millisecond
	return c, late
}

type barredNode struct{ *memory.Backend }

func (*barredNode) Reenter(context.Context, *backend.Hold, int, int64) error { return backend.ErrAuth }

// A lockedNode denies to downgrade a hold.
type lockedNode struct{ *memory.Backend }

func (*lockedNode) Downgrade(context.Context, *backend.Hold) error { return backend.ErrAuth }

// A hold has two of three nodes, of which one denies the entry, and the third is about to join. That
// makes a majority with the other.
func TestEntryWhileANodeJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.withLateThird(t, &barredNode{memory.New(s[1])})
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		in, err := c.Mutex("x").Lock(l.Context(t.Context()))
		ok(t, err)
		_ = in.Unlock(t.Context())
		ok(t, l.Unlock(t.Context()))
	})
}

// A hold has two of three nodes, of which one denies the downgrade, and the third is about to join.
func TestDowngradeWhileANodeJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.withLateThird(t, &lockedNode{memory.New(s[1])})
		l, err := c.RWMutex("x").Lock(t.Context())
		ok(t, err)
		ok(t, l.Downgrade(t.Context()))
		time.Sleep(3 * ttl)
		ok(t, l.Err())
		ok(t, l.Unlock(t.Context()))
	})
}

// Several goroutines enter to read at the same moment, while the third node is about to join: each hears
// of that.
func TestEntriesAtOnceWhileANodeJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, late := s.withLateThird(t, &barredNode{memory.New(s[1])})
		l, err := c.RWMutex("x").Lock(t.Context())
		ok(t, err)
		began := time.Now()
		var entering sync.WaitGroup
		for range 4 {
			entering.Go(func() {
				in, err := c.RWMutex("x").RLock(l.Context(t.Context()))
				if err != nil {
					t.Error(err)
					return
				}
				if took := time.Since(began); took > late.late {
					t.Errorf("entered after %v", took)
				}
				_ = in.Unlock(t.Context())
			})
		}
		entering.Wait()
		ok(t, l.Unlock(t.Context()))
	})
}

// The third node is far away, as always, and about to join.
func TestEntryWhileADistantNodeJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		far := &farVoter{memory.New(s[2]), 300 * time.Millisecond}
		c := over(t, []backend.Backend{memory.New(s[0]), &barredNode{memory.New(s[1])}, far}, nil)
		for range 10 { // it learns how long the node takes
			ok(t, dlock.Do(t.Context(), c.Mutex("x"), nothing))
			time.Sleep(time.Second)
		}
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		in, err := c.Mutex("x").Lock(l.Context(t.Context()))
		ok(t, err)
		_ = in.Unlock(t.Context())
		ok(t, l.Unlock(t.Context()))
	})
}

// The third node has refused the hold after the lock was taken, since another had not ended there, and is
// asked again in a moment.
func TestEntryBeforeANodeIsAskedAgain(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		late := &farVoter{memory.New(s[2]), time.Millisecond}
		c := over(t, []backend.Backend{memory.New(s[0]), &barredNode{memory.New(s[1])}, late}, nil)
		last, err := late.Acquire(t.Context(), backend.Request{Name: "x", Mode: backend.Exclusive, TTL: ttl})
		ok(t, err)
		l, err := c.Mutex("x").TryLock(t.Context())
		ok(t, err)
		time.Sleep(2 * late.late)
		ok(t, late.Release(t.Context(), last))
		in, err := c.Mutex("x").Lock(l.Context(t.Context()))
		ok(t, err)
		_ = in.Unlock(t.Context())
		ok(t, l.Unlock(t.Context()))
	})
}

// A forgetfulNode has lost its part of a hold, and says so late.
type forgetfulNode struct{ *memory.Backend }

func (*forgetfulNode) Reenter(context.Context, *backend.Hold, int, int64) error {
	time.Sleep(60 * time.Millisecond)
	return backend.ErrLost
}

// A hold has two of three nodes, of which one says at an entry that it has lost its part. The third
// has joined meanwhile: two nodes have the hold all the time.
func TestEntryBesideALossWhileANodeJoins(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, _ := s.withLateThird(t, &forgetfulNode{memory.New(s[1])})
		l, err := c.Mutex("x").Lock(t.Context())
		ok(t, err)
		in, err := c.Mutex("x").Lock(l.Context(t.Context()))
		if err == nil {
			_ = in.Unlock(t.Context())
		}
		ok(t, l.Err())
		_ = l.Unlock(t.Context())
	})
}
