package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
)

const (
	ttl  = 10 * time.Second
	skew = time.Second
	// delay is longer than a node that forgot stays out.
	delay = ttl + 2*skew + time.Second
)

// nodes are independent servers in memory.
type nodes []*memory.Server

// in runs a test in a bubble, over n nodes.
func in(t *testing.T, n int, test func(t *testing.T, s nodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := make(nodes, n)
		for i := range s {
			s[i] = memory.NewServer()
		}
		test(t, s)
	})
}

// ripe is in, after the nodes have been up for long enough to vote.
func ripe(t *testing.T, n int, test func(t *testing.T, s nodes)) {
	t.Helper()
	in(t, n, func(t *testing.T, s nodes) {
		s.ripen(t)
		test(t, s)
	})
}

func (s nodes) ripen(t *testing.T) {
	t.Helper()
	_, err := s.open(t, nil).Mutex("ripen").TryLock(t.Context())
	is(t, err, dlock.ErrUnavailable)
	time.Sleep(delay)
}

// open returns a client, and closes it at the end of the test.
func (s nodes) open(t *testing.T, o *quorum.Options) *client {
	t.Helper()
	c := &client{t: t}
	all := make([]backend.Backend, len(s))
	for i := range s {
		m := memory.New(s[i])
		c.links = append(c.links, m)
		all[i] = m
	}
	c.Client = over(t, all, o)
	return c
}

// over returns a client of a quorum, and closes it at the end of the test.
func over(t *testing.T, all []backend.Backend, o *quorum.Options) *dlock.Client {
	t.Helper()
	if o == nil {
		o = &quorum.Options{MaxTTL: ttl, Skew: skew}
	}
	b, err := quorum.New(all, o)
	ok(t, err)
	c, err := dlock.New(b, &dlock.Options{TTL: ttl})
	ok(t, err)
	t.Cleanup(func() { ok(t, c.Close(context.Background())) })
	return c
}

// empty fails the test if any node has or gets anything of name in the time in
// which everything is cleared up.
func (s nodes) empty(t *testing.T) {
	t.Helper()
	time.Sleep(2 * time.Second)
	for i := range s {
		if n := s[i].Names(); n != 0 {
			t.Errorf("node %d has %d names", i, n)
		}
	}
}

// freeze stops the first n nodes.
func (s nodes) freeze(n int) {
	for i := range n {
		s[i].Freeze()
	}
}

func (s nodes) thaw() {
	for i := range s {
		s[i].Thaw()
	}
}

// A client has a link to each node.
type client struct {
	t *testing.T
	*dlock.Client
	links []*memory.Backend
}

func (c *client) lock(name string) *dlock.Lease {
	c.t.Helper()
	l, err := c.Mutex(name).Lock(c.t.Context())
	ok(c.t, err)
	return l
}

func (c *client) try(name string) (*dlock.Lease, error) {
	return c.Mutex(name).TryLock(c.t.Context())
}

func (c *client) unlock(l *dlock.Lease) {
	c.t.Helper()
	ok(c.t, l.Unlock(context.Background()))
}

// cut separates the client from the first n nodes.
func (c *client) cut(n int) {
	for _, l := range c.links[:n] {
		l.Cut()
	}
}

func (c *client) heal() {
	for _, l := range c.links {
		l.Heal()
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error is %v, want %v", err, kind)
	}
}

func must(t *testing.T, cond bool, format string, args ...any) {
	t.Helper()
	if !cond {
		t.Fatalf(format, args...)
	}
}

func nothing(context.Context, *dlock.Lease) error { return nil }
