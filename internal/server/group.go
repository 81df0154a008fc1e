package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"
)

// A group is servers that end together.
type group []*Server

// StartAll runs servers for one test, all at once: independent masters, for one.
func StartAll(t testing.TB, kinds ...Kind) []*Server {
	t.Helper()
	g, err := newGroup(kinds...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, g)
	return g
}

// Copies is n times the same kind, for StartAll.
func Copies(n int, kind Kind) []Kind {
	kinds := make([]Kind, n)
	for i := range kinds {
		kinds[i] = kind
	}
	return kinds
}

func newGroup(kinds ...Kind) (group, error) {
	g := make(group, len(kinds))
	err := g.each(func(i int) (err error) {
		g[i], err = New(kinds[i])
		return err
	})
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Close closes every server that has started.
func (g group) Close() error {
	return g.each(func(i int) error {
		if g[i] == nil {
			return nil
		}
		return g[i].Close()
	})
}

// each calls f for every server at once.
func (g group) each(f func(i int) error) error {
	failed := make([]error, len(g))
	var all sync.WaitGroup
	for i := range g {
		all.Go(func() { failed[i] = f(i) })
	}
	all.Wait()
	return errors.Join(failed...)
}

func closeAtEnd(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// await calls ready until it returns nil.
func await(ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("dlock: the servers do not form one service"), err)
		case <-time.After(pollInterval):
		}
	}
}
