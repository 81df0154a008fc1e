package memory

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		a, b := New(s), New(s)
		began := time.Now()
		r := request("x", 1)
		r.Label = "holder"
		h, err := a.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		granted := make(chan *backend.Hold, 2)
		for seq, mode := range []backend.Mode{backend.Shared, backend.Exclusive} {
			go func() {
				r := request("x", uint64(seq+2))
				r.ID.Client, r.Mode, r.Label = "d", mode, mode.String()
				h, _ := b.Acquire(t.Context(), r)
				granted <- h
			}()
			synctest.Wait()
		}
		if err := a.Reenter(t.Context(), h, 3, 1); err != nil {
			t.Fatal(err)
		}
		got, err := b.Inspect(t.Context(), "x")
		want := backend.Snapshot{
			Holders: []backend.Party{{Label: "holder", Client: "c", Mode: backend.Exclusive, Entries: 3, Since: began, Left: time.Minute, Token: h.Token}},
			Waiters: []backend.Party{
				{Label: "shared", Client: "d", Mode: backend.Shared, Since: began.Add(time.Second)},
				{Label: "exclusive", Client: "d", Mode: backend.Exclusive, Since: began.Add(time.Second)},
			},
		}
		if err != nil || !slices.EqualFunc(got.Holders, want.Holders, same) || !slices.EqualFunc(got.Waiters, want.Waiters, same) {
			t.Errorf("%+v, %v", got, err)
		}

		if err := b.Break(t.Context(), "x", h.Token-1); !errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Break with a token that is over: %v", err)
		}
		if err := b.Break(t.Context(), "x", h.Token); err != nil {
			t.Error(err)
		}
		next := <-granted
		if next.Mode != backend.Shared || next.Token <= h.Token {
			t.Errorf("after Break: %+v", next)
		}
		a.Renew(t.Context(), []*backend.Hold{h}, func(_ *backend.Hold, err error) {
			if !errors.Is(err, backend.ErrLost) || !errors.Is(err, backend.ErrBroken) {
				t.Errorf("renewal of a broken hold: %v", err)
			}
		})
		if err := b.Release(t.Context(), next); err != nil {
			t.Error(err)
		}
		<-granted
		time.Sleep(time.Hour)
		if got, err := b.Inspect(t.Context(), "x"); err != nil || len(got.Holders)+len(got.Waiters) > 0 {
			t.Errorf("long after: %+v, %v", got, err)
		}
	})
}

func same(a, b backend.Party) bool {
	ok := a.Since.Equal(b.Since)
	a.Since, b.Since = time.Time{}, time.Time{}
	return ok && a == b
}

func TestNames(t *testing.T) {
	b := New(nil)
	for i, name := range []string{"a", "b/1", "b/2", "b"} {
		if _, err := b.Acquire(t.Context(), request(name, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for name, err := range b.Names(t.Context(), "b/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	slices.Sort(got)
	if s := strings.Join(got, " "); s != "b/1 b/2" {
		t.Errorf("names %q", s)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := range b.Names(t.Context(), "") {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}
