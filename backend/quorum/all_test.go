package quorum_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

// A stranger is a backend with no token register, and no optional method but
// Renew.
type stranger struct {
	backend.Backend
	backend.Renewer
}

func strange(s *memory.Server) *stranger {
	m := memory.New(s)
	return &stranger{Backend: m, Renewer: m}
}

func TestNewRefuses(t *testing.T) {
	server := memory.NewServer()
	several := func(n int) (all []backend.Backend) {
		for range n {
			all = append(all, memory.New(server))
		}
		return all
	}
	for name, c := range map[string]struct {
		nodes []backend.Backend
		o     *quorum.Options
		kind  error
	}{
		"none":           {nil, nil, backend.ErrInvalidConfig},
		"one":            {several(1), nil, backend.ErrInvalidConfig},
		"even":           {several(4), nil, backend.ErrInvalidConfig},
		"nil":            {append(several(2), nil), nil, backend.ErrInvalidConfig},
		"half":           {several(4), &quorum.Options{Need: 2}, backend.ErrInvalidConfig},
		"too many":       {several(4), &quorum.Options{Need: 5}, backend.ErrInvalidConfig},
		"negative":       {several(3), &quorum.Options{Need: -1}, backend.ErrInvalidConfig},
		"one of one":     {several(1), &quorum.Options{Need: 1}, backend.ErrInvalidConfig},
		"negative TTL":   {several(3), &quorum.Options{MaxTTL: -1}, backend.ErrInvalidConfig},
		"great TTL":      {several(3), &quorum.Options{MaxTTL: 25 * time.Hour}, backend.ErrInvalidConfig},
		"negative skew":  {several(3), &quorum.Options{Skew: -1}, backend.ErrInvalidConfig},
		"no register":    {append(several(2), strange(server)), nil, backend.ErrUnsupported},
		"3 of 4 strange": {append(several(3), strange(server)), &quorum.Options{Need: 3}, backend.ErrUnsupported},
	} {
		if _, err := quorum.New(c.nodes, c.o); !errors.Is(err, c.kind) {
			t.Errorf("%s: error is %v, want %v", name, err, c.kind)
		}
	}
	for n, o := range map[int]*quorum.Options{3: nil, 5: {}, 2: {Need: 2}, 4: {Need: 3}} {
		if _, err := quorum.New(several(n), o); err != nil {
			t.Errorf("%d nodes: %v", n, err)
		}
	}
	if n := server.Ops(); n != 0 {
		t.Errorf("%d requests have been sent", n)
	}
}

// everyNode opens a client that needs all nodes; the last of them is a stranger.
func (s nodes) everyNode(t *testing.T) *client {
	t.Helper()
	c := &client{t: t}
	var all []backend.Backend
	for i := range s {
		m := memory.New(s[i])
		c.links = append(c.links, m)
		all = append(all, m)
	}
	last := len(s) - 1
	all[last] = &stranger{Backend: c.links[last], Renewer: c.links[last]}
	b, err := quorum.New(all, &quorum.Options{Need: len(all)})
	ok(t, err)
	c.Client, err = dlock.New(b, &dlock.Options{TTL: ttl})
	ok(t, err)
	t.Cleanup(func() { ok(t, c.Close(context.Background())) })
	return c
}

func TestAllExclude(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		r := &checker{t: t}
		var all sync.WaitGroup
		for range 5 {
			c := s.everyNode(t)
			all.Go(func() {
				for range 50 {
					r.visit(c)
				}
			})
		}
		all.Wait()
		s.empty(t)
	})
}

// One node that does not answer is one too many.
func TestAllNeedsAll(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		c := s.everyNode(t)
		l := c.lock("x")
		s[1].Freeze()
		<-l.Done()
		is(t, l.Err(), dlock.ErrLost)
		for _, lock := range []func(context.Context) (*dlock.Lease, error){c.Mutex("x").Lock, c.Mutex("x").TryLock} {
			_, err := lock(t.Context())
			is(t, err, dlock.ErrUnavailable)
		}
		s.thaw()
		s.empty(t)
	})
}

// A node that forgets everything does not let a second holder in.
func TestAllSurvivesANodeThatForgets(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		a, b := s.everyNode(t), s.everyNode(t)
		l := a.lock("x")
		a.cut(3)
		s[0].Wipe()
		for range 8 {
			_, err := b.try("x")
			is(t, err, dlock.ErrHeld)
			time.Sleep(time.Second)
		}
		next := b.lock("x")
		is(t, l.Err(), dlock.ErrLost)
		must(t, next.Token() > l.Token(), "token %d came after %d", next.Token(), l.Token())
		b.unlock(next)
		a.heal()
	})
}

// Somebody who uses one node alone has the lock there: nobody else gets it, and
// nobody keeps the other nodes while waiting.
func TestAllWaitsForAStranger(t *testing.T) {
	in(t, 3, func(t *testing.T, s nodes) {
		only, err := dlock.New(memory.New(s[1]), &dlock.Options{TTL: ttl})
		ok(t, err)
		theirs, err := only.Mutex("x").Lock(t.Context())
		ok(t, err)
		c := s.everyNode(t)
		_, err = c.try("x")
		is(t, err, dlock.ErrHeld)
		got := make(chan *dlock.Lease)
		go func() { got <- c.lock("x") }()
		time.Sleep(5 * ttl)
		select {
		case <-got:
			t.Fatal("a lock that somebody has on one node was granted")
		default:
		}
		ok(t, theirs.Unlock(t.Context()))
		c.unlock(<-got)
		ok(t, only.Close(t.Context()))
		s.empty(t)
	})
}

// Downgrade is refused where one node could not do it, before any is asked.
func TestAllDowngradeUnsupported(t *testing.T) {
	in(t, 2, func(t *testing.T, s nodes) {
		l := s.everyNode(t).lock("x")
		is(t, l.Downgrade(t.Context()), dlock.ErrUnsupported)
		ok(t, l.Unlock(t.Context()))
	})
}

// Errors name the nodes that failed, by their place.
func TestErrorNamesNodes(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c := s.open(t, nil)
		for _, i := range []int{0, 2} {
			c.links[i].FailNext(backend.Fail(backend.ErrAuth, errors.New("no entry")))
		}
		_, err := c.try("x")
		is(t, err, dlock.ErrAuth)
		must(t, strings.Contains(err.Error(), "node 1") && strings.Contains(err.Error(), "node 3") &&
			!strings.Contains(err.Error(), "node 2"), "the error says %v", err)
	})
}
