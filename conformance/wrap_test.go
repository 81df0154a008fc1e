package conformance

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// bare has the methods that every backend has.
type bare struct{ backend.Backend }

type (
	renewer    struct{ backend.Renewer }
	downgrader struct{ backend.Downgrader }
	expirer    struct{ backend.Expirer }
)

// A wrapped backend can renew, downgrade and expire exactly where the one behind it can.
func TestWrapKeepsWhatThereIs(t *testing.T) {
	m := memory.New(nil)
	defer m.Close(t.Context())
	r, d, e := renewer{m}, downgrader{m}, expirer{m}
	for _, b := range []backend.Backend{
		bare{m},
		struct {
			bare
			renewer
		}{bare{m}, r},
		struct {
			bare
			downgrader
		}{bare{m}, d},
		struct {
			bare
			expirer
		}{bare{m}, e},
		struct {
			bare
			renewer
			downgrader
		}{bare{m}, r, d},
		struct {
			bare
			renewer
			expirer
		}{bare{m}, r, e},
		struct {
			bare
			downgrader
			expirer
		}{bare{m}, d, e},
		m,
	} {
		w := Wrap(b, Layer{})
		for _, typ := range []reflect.Type{
			reflect.TypeFor[backend.Renewer](), reflect.TypeFor[backend.Downgrader](), reflect.TypeFor[backend.Expirer](),
		} {
			if has, want := reflect.TypeOf(w).Implements(typ), reflect.TypeOf(b).Implements(typ); has != want {
				t.Errorf("%T behind a layer implements %v: %v, want %v", b, typ, has, want)
			}
		}
		if _, ok := w.(backend.TokenRegister); ok {
			t.Errorf("%T behind a layer is a TokenRegister", b)
		}
	}
}

// shortExpirer can have a hold end by itself within a minute.
type shortExpirer struct{ *memory.Backend }

func (shortExpirer) CanExpire(d time.Duration) bool { return d <= time.Minute }

// What ends by itself for some times only does so behind a layer.
func TestWrapKeepsWhatCanExpire(t *testing.T) {
	m := memory.New(nil)
	defer m.Close(t.Context())
	for _, b := range []backend.Backend{m, shortExpirer{m}, bare{m}} {
		for _, d := range []time.Duration{time.Minute, time.Hour} {
			if has, want := backend.CanExpire(Wrap(b, Layer{}), d), backend.CanExpire(b, d); has != want {
				t.Errorf("%T behind a layer for %v: %v, want %v", b, d, has, want)
			}
		}
	}
}

// What the backend cannot do, it cannot do behind a layer.
func TestWrapWithoutOptional(t *testing.T) {
	ctx := t.Context()
	b := Wrap(bare{memory.New(nil)}, Layer{}).(*wrapped)
	defer b.Close(ctx)
	h, err := b.Acquire(ctx, request("x"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Inspect(ctx, "x")
	unsupported(t, err)
	for _, err := range b.Names(ctx, "") {
		unsupported(t, err)
	}
	unsupported(t, b.Break(ctx, "x", h.Token))
	_, err = b.Ping(ctx)
	unsupported(t, err)
	if err := b.Reenter(ctx, h, 2, 1); err != nil {
		t.Errorf("an entry that is not counted: %v", err)
	}
	if _, ok := b.Transfer(h); ok {
		t.Error("a hold was passed on")
	}
	if b.MinTTL() != backend.MinTTL {
		t.Errorf("the shortest lease is %v", b.MinTTL())
	}
	var released []error
	b.ReleaseAll(ctx, []*backend.Hold{h}, func(_ *backend.Hold, err error) { released = append(released, err) })
	if len(released) != 1 || released[0] != nil {
		t.Errorf("released: %v", released)
	}
}

func unsupported(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("error is %v, want ErrUnsupported", err)
	}
}

func request(name string) backend.Request {
	return backend.Request{Name: name, ID: backend.ID{Client: "c", Seq: 1}, Mode: backend.Exclusive, TTL: time.Minute, Observer: deaf{}}
}

// Each function of a layer is called in place of its method, once, and each that is nil
// lets the call through.
func TestWrapCallsItsLayer(t *testing.T) {
	var calls []string
	note := func(name string) { calls = append(calls, name) }
	hold := func(name string) func(context.Context, *backend.Hold, HoldFunc) error {
		return func(ctx context.Context, h *backend.Hold, next HoldFunc) error { note(name); return next(ctx, h) }
	}
	full := Layer{
		Acquire: func(ctx context.Context, r backend.Request, next AcquireFunc) (*backend.Hold, error) {
			note("Acquire")
			return next(ctx, r)
		},
		Release: hold("Release"), Reenter: hold("Reenter"), Downgrade: hold("Downgrade"), Expire: hold("Expire"),
		Renew: func(ctx context.Context, holds []*backend.Hold, report ReportFunc, next RenewFunc) {
			note("Renew")
			next(ctx, holds, report)
		},
		Transfer: func(h *backend.Hold, next TransferFunc) (uint64, bool) { note("Transfer"); return next(h) },
		Inspect: func(ctx context.Context, name string, next InspectFunc) (backend.Snapshot, error) {
			note("Inspect")
			return next(ctx, name)
		},
		Names: func(ctx context.Context, prefix string, next NamesFunc) iter.Seq2[string, error] {
			note("Names")
			return next(ctx, prefix)
		},
		Break: func(ctx context.Context, name string, token uint64, next BreakFunc) error {
			note("Break")
			return next(ctx, name, token)
		},
		Ping:  func(ctx context.Context, next PingFunc) (string, error) { note("Ping"); return next(ctx) },
		Close: func(ctx context.Context, next func(context.Context) error) error { note("Close"); return next(ctx) },
	}
	useAll(t, Wrap(memory.New(nil), Layer{}))
	if len(calls) != 0 {
		t.Fatalf("an empty layer was called: %v", calls)
	}
	useAll(t, Wrap(memory.New(nil), full))
	want := []string{
		"Acquire", "Renew", "Reenter", "Transfer", "Inspect", "Names", "Ping", "Downgrade", "Expire", "Release",
		"Acquire", "Break", "Acquire", "Release", "Close",
	}
	if !reflect.DeepEqual(calls, want) {
		t.Errorf("calls: %v\nwant:  %v", calls, want)
	}
}

// useAll calls each method of b.
func useAll(t *testing.T, b backend.Backend) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	report := func(_ *backend.Hold, err error) { check(err) }
	h, err := b.Acquire(ctx, request("x"))
	check(err)
	b.(backend.Renewer).Renew(ctx, []*backend.Hold{h}, report)
	check(b.(backend.Reenterer).Reenter(ctx, h, 1, 1))
	b.(backend.Transferer).Transfer(h)
	s, err := b.(backend.Inspector).Inspect(ctx, "x")
	check(err)
	if len(s.Holders) != 1 {
		t.Errorf("%+v has not one holder", s)
	}
	for name, err := range b.(backend.Inspector).Names(ctx, "") {
		check(err)
		if name != "x" {
			t.Errorf("a name is %q", name)
		}
	}
	_, err = b.(backend.Pinger).Ping(ctx)
	check(err)
	check(b.(backend.Downgrader).Downgrade(ctx, h))
	check(b.(backend.Expirer).Expire(ctx, h, time.Second))
	check(b.Release(ctx, h))
	h, err = b.Acquire(ctx, request("y"))
	check(err)
	check(b.(backend.Breaker).Break(ctx, "y", h.Token))
	h, err = b.Acquire(ctx, request("z"))
	check(err)
	b.(backend.BatchReleaser).ReleaseAll(ctx, []*backend.Hold{h}, report)
	check(b.Close(ctx))
}
