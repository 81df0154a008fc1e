package simulation

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
)

// judged are the violations of a world of one client in which f happens.
func judged(t *testing.T, f func(w *world, l *listener)) (violations []Violation) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{plan: &Plan{Backend: "memory", Servers: 1, Names: 1, TTL: time.Second, Clients: []Party{{Hooks: "count", Logs: true}}}}
		w.reg = newRegister(w)
		c := &client{closed: make(chan struct{})}
		w.clients = []*client{c}
		_, l := w.listens(c)
		c.hooks = l
		f(w, l)
		synctest.Wait()
		violations = w.reg.violations
	})
	return violations
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// closedByUnlock tells l that Close has ended the lease of a call, in the goroutine of an Unlock of a lease:
// that one, if it is not nil.
func closedByUnlock(call context.Context, l *listener, got dlock.AcquiredEvent, lease *dlock.Lease) {
	l.closed = closedChannel()
	l.hasAcquired(call, got)
	ctx, unlocks := l.unlocks(context.Background())
	l.leaseOf[7].lease = lease
	if lease == nil {
		l.leaseOf[7].lease, lease = new(dlock.Lease), new(dlock.Lease)
	}
	unlocks(lease)
	l.hasClosed(ctx, dlock.ClosedEvent{Name: "a", Lease: 7, Token: 3})
}

// What hooks are told that is not so is found.
func TestLiesToHooks(t *testing.T) {
	background := context.Background()
	begin := func(l *listener) context.Context {
		return l.acquiring(background, dlock.AcquiringEvent{Op: "lock", Name: "a"})
	}
	got := dlock.AcquiredEvent{Op: "lock", Name: "a", Lease: 7, Token: 3, Place: "p", FullName: "a"}
	held := dlock.NotAcquiredEvent{Op: "lock", Name: "a", Outcome: dlock.OutcomeHeld, Err: &dlock.Error{Op: "lock", Name: "a", Kind: dlock.ErrHeld}}
	for what, c := range map[string]struct {
		lies bool
		tell func(l *listener)
	}{
		"all is so": {false, func(l *listener) {
			ctx := begin(l)
			l.waiting(ctx, dlock.WaitingEvent{Op: "lock", Name: "a", Lock: "a"})
			e := got
			e.Queued = true
			l.hasAcquired(ctx, e)
			l.released(background, dlock.ReleasedEvent{Name: "a", Lease: 7, Token: 3})
			l.agrees()
		}},
		"an operation":       {true, func(l *listener) { l.acquiring(background, dlock.AcquiringEvent{Op: "take", Name: "a"}) }},
		"a mode":             {true, func(l *listener) { l.acquiring(background, dlock.AcquiringEvent{Op: "rlock", Name: "a"}) }},
		"another context":    {true, func(l *listener) { begin(l); l.hasAcquired(background, got) }},
		"another name":       {true, func(l *listener) { ctx, e := begin(l), got; e.Name, e.FullName = "b", "b"; l.hasAcquired(ctx, e) }},
		"how long it waited": {true, func(l *listener) { ctx := begin(l); time.Sleep(time.Second); l.hasAcquired(ctx, got) }},
		"waiting twice": {true, func(l *listener) {
			ctx, e := begin(l), dlock.WaitingEvent{Op: "lock", Name: "a", Lock: "a"}
			l.waiting(ctx, e)
			l.waiting(ctx, e)
		}},
		"waiting for another lock": {true, func(l *listener) { l.waiting(begin(l), dlock.WaitingEvent{Op: "lock", Name: "a", Lock: "b"}) }},
		"a try that waits": {true, func(l *listener) {
			ctx := l.acquiring(background, dlock.AcquiringEvent{Op: "trylock", Name: "a"})
			l.waiting(ctx, dlock.WaitingEvent{Op: "trylock", Name: "a", Lock: "a"})
		}},
		"queued":         {true, func(l *listener) { ctx, e := begin(l), got; e.Queued = true; l.hasAcquired(ctx, e); l.agrees() }},
		"not queued":     {true, func(l *listener) { ctx, e := begin(l), got; e.HandOver = dlock.RemoteHandOver; l.hasAcquired(ctx, e) }},
		"no token":       {true, func(l *listener) { ctx, e := begin(l), got; e.Token = 0; l.hasAcquired(ctx, e) }},
		"the same lease": {true, func(l *listener) { l.hasAcquired(begin(l), got); l.hasAcquired(begin(l), got) }},
		"another place": {true, func(l *listener) {
			l.hasAcquired(begin(l), got)
			e := got
			e.Lease, e.Place = 8, "q"
			l.hasAcquired(begin(l), e)
		}},
		"a call ends twice": {true, func(l *listener) { ctx := begin(l); l.hasAcquired(ctx, got); l.hasNotAcquired(ctx, held) }},
		"another error":     {true, func(l *listener) { e := held; e.Err = errors.New("x"); l.hasNotAcquired(begin(l), e) }},
		"no such lease":     {true, func(l *listener) { l.released(background, dlock.ReleasedEvent{Name: "a", Lease: 9}) }},
		"age": {true, func(l *listener) {
			l.hasAcquired(begin(l), got)
			l.released(background, dlock.ReleasedEvent{Name: "a", Lease: 7, Token: 3, Age: time.Second})
		}},
		"released and lost": {true, func(l *listener) {
			l.hasAcquired(begin(l), got)
			l.released(background, dlock.ReleasedEvent{Name: "a", Lease: 7, Token: 3, Err: dlock.ErrLost})
		}},
		"nobody has called Break": {true, func(l *listener) {
			l.hasAcquired(begin(l), got)
			err := &dlock.Error{Op: "hold", Name: "a", Kind: dlock.ErrLost, Err: dlock.ErrBroken}
			l.lost(dlock.LostEvent{Name: "a", Lease: 7, Token: 3, Cause: dlock.LossBroken, Err: err})
		}},
		"another cause": {true, func(l *listener) {
			l.hasAcquired(begin(l), got)
			l.lost(dlock.LostEvent{Name: "a", Lease: 7, Token: 3, Cause: dlock.LossExpired, Err: &dlock.Error{Op: "hold", Name: "a", Kind: dlock.ErrLost}})
		}},
		"closed by nobody": {true, func(l *listener) {
			l.hasAcquired(begin(l), got)
			l.hasClosed(background, dlock.ClosedEvent{Name: "a", Lease: 7, Token: 3})
		}},
		"closed before its call has returned": {false, func(l *listener) {
			l.closed = closedChannel()
			ctx := begin(l)
			l.hasAcquired(ctx, got)
			l.hasClosed(ctx, dlock.ClosedEvent{Name: "a", Lease: 7, Token: 3})
		}},
		"closed before Close": {true, func(l *listener) {
			ctx := begin(l)
			l.hasAcquired(ctx, got)
			l.hasClosed(ctx, dlock.ClosedEvent{Name: "a", Lease: 7, Token: 3})
		}},
		"closed by Unlock":            {false, func(l *listener) { closedByUnlock(begin(l), l, got, new(dlock.Lease)) }},
		"closed by Unlock of another": {true, func(l *listener) { closedByUnlock(begin(l), l, got, nil) }},
		"closed by a call that has returned": {true, func(l *listener) {
			l.closed = closedChannel()
			ctx := begin(l)
			l.hasAcquired(ctx, got)
			l.leaseOf[7].lease = new(dlock.Lease)
			l.hasClosed(ctx, dlock.ClosedEvent{Name: "a", Lease: 7, Token: 3})
		}},
		"more is left": {true, func(l *listener) { l.hasRenewed(dlock.RenewedEvent{Name: "a", Token: 3, Left: 2, TTL: 1}) }},
		"no error":     {true, func(l *listener) { l.renewalFailed(dlock.RenewalFailedEvent{Name: "a", Token: 3, Left: 1, TTL: 2}) }},
	} {
		if v := judged(t, func(_ *world, l *listener) { c.tell(l) }); c.lies != (len(v) > 0) {
			t.Errorf("%s: %v", what, v)
		}
	}
}

// A name with spaces is one of those that are joined by spaces.
func TestNamesWithSpaces(t *testing.T) {
	for one, want := range map[string]bool{" ": true, "a b": true, "c": true, " b c": false, "d": false} {
		if names("  a b c", one) != want {
			t.Errorf("%q: %t", one, !want)
		}
	}
}

// An outcome that cannot be is found, by what a context was and is.
func TestOutcomes(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	held, failed := &dlock.Error{Kind: dlock.ErrHeld}, &dlock.Error{Kind: dlock.ErrUnavailable}
	for _, c := range []struct {
		ctx  context.Context
		o    dlock.Outcome
		err  error
		true bool
	}{
		{context.Background(), dlock.OutcomeHeld, held, true},
		{context.Background(), dlock.OutcomeHeld, failed, false},
		{context.Background(), dlock.OutcomeCanceled, held, false},
		{context.Background(), dlock.OutcomeFailed, held, false},
		{context.Background(), dlock.OutcomeFailed, failed, true},
		{canceled, dlock.OutcomeCanceled, held, true},
	} {
		if isOutcome(c.ctx, false, &dlock.NotAcquiredEvent{Outcome: c.o, Err: c.err}) != c.true {
			t.Errorf("%+v", c)
		}
	}
}

// What a logger is told that is not so, or too often, is found, and what it is not told.
func TestLiesToALogger(t *testing.T) {
	lost := []any{"dlock.lock.name", "a", "dlock.mode", "exclusive", "dlock.token", uint64(3), "dlock.cause", "taken", "error.type", "lost", "error", "x"}
	late := append(lost[:6:6], "error.type", "unavailable", "error", "x")
	for what, c := range map[string]struct {
		lies bool
		tell func(w *world, l *slog.Logger)
	}{
		"all is so": {false, func(_ *world, l *slog.Logger) {
			l.Error("dlock: lock lost", lost...)
			l.Warn("dlock: lock not renewed yet", late...)
		}},
		"a level": {true, func(_ *world, l *slog.Logger) { l.Warn("dlock: lock lost", lost...) }},
		"a line":  {true, func(_ *world, l *slog.Logger) { l.Error("dlock: something", lost...) }},
		"no type": {true, func(_ *world, l *slog.Logger) { l.Error("dlock: lock lost", lost[:8]...) }},
		"twice": {true, func(_ *world, l *slog.Logger) {
			l.Error("dlock: lock lost", lost...)
			l.Error("dlock: lock lost", lost...)
		}},
		"twice, of two holds with one token": {false, func(w *world, l *slog.Logger) {
			l.Error("dlock: lock lost", lost...)
			w.reg.touches = append(w.reg.touches, touched{kind: "restart-old", client: -1, to: time.Now().Add(time.Second)})
			l.Error("dlock: lock lost", lost...)
		}},
		"several lines": {true, func(_ *world, l *slog.Logger) { l.Error("dlock: lock lost", append(lost[:10:10], "error", "x\ny")...) }},
		"a storm": {true, func(_ *world, l *slog.Logger) {
			l.Warn("dlock: lock not renewed yet", late...)
			time.Sleep(time.Second)
			l.Warn("dlock: lock not renewed yet", late...)
		}},
		"a loss unsaid": {true, func(w *world, _ *slog.Logger) {
			w.reg.unlogged = []unlogged{{0, "a lease", map[string]uint64{"a": 3}}}
			w.logsAdd()
		}},
		"a failure unsaid": {true, func(w *world, _ *slog.Logger) {
			w.clients[0].hooks.renewalFailed(dlock.RenewalFailedEvent{Name: "a", Token: 3, Left: 1, TTL: 2, Err: errPart})
			w.logsAdd()
		}},
	} {
		v := judged(t, func(w *world, _ *listener) { c.tell(w, w.logger(w.clients[0])) })
		if c.lies != (len(v) > 0) {
			t.Errorf("%s: %v", what, v)
		}
	}
}

// A Close that does not do what it says is found.
func TestCloseThatLies(t *testing.T) {
	unavailable := func(text string) error {
		return &dlock.Error{Op: "close", Kind: dlock.ErrUnavailable, Err: errors.New(text)}
	}
	for what, c := range map[string]struct {
		lies bool
		took time.Duration
		ill  bool // something has gone wrong
		err  error
	}{
		"all is so":        {false, 0, true, unavailable(`not confirmed to be free: "a"`)},
		"nothing is wrong": {true, 0, false, unavailable(`not confirmed to be free: "a"`)},
		"it takes long":    {true, time.Second, false, nil},
		"of another call":  {true, 0, true, &dlock.Error{Op: "unlock", Kind: dlock.ErrUnavailable}},
		"of another lock":  {true, 0, true, unavailable(`not confirmed to be free: "a", "b"`)},
	} {
		v := judged(t, func(w *world, _ *listener) {
			w.reg.mu.Lock()
			defer w.reg.mu.Unlock()
			w.reg.see(0, []string{"a"})
			if c.ill {
				w.reg.touches = append(w.reg.touches, touched{kind: "reset", client: 0, to: time.Now()})
			}
			k := w.reg.closes(0)
			k.began, k.had = k.began.Add(-c.took), time.Minute
			w.reg.judgesClose(0, k, c.err)
		})
		if c.lies != (len(v) > 0) {
			t.Errorf("%s: %v", what, v)
		}
	}
	for what, waits := range map[string]bool{"a call waits": true, "none waits": false} {
		v := judged(t, func(w *world, _ *listener) {
			k := &closing{began: time.Now().Add(time.Millisecond)}
			if waits {
				w.reg.calls[&call{what: "lock", names: []string{"a"}, start: time.Now(), waits: true}] = true
			}
			w.reg.waitsNoMore(0, k)
		})
		if waits != (len(v) > 0) {
			t.Errorf("%s: %v", what, v)
		}
	}
}

// Do that does not end as its function has is found.
func TestDoThatLies(t *testing.T) {
	for what, c := range map[string]struct {
		lies bool
		op   Op
		end  ending
	}{
		"all is so":            {false, Op{}, ending{}},
		"a panic is lost":      {true, Op{Uses: Uses{Function: "panics"}}, ending{}},
		"a panic from nowhere": {true, Op{}, ending{thrown: errThrown}},
		"it goes on":           {true, Op{Uses: Uses{Function: "exits"}}, ending{}},
	} {
		v := judged(t, func(w *world, _ *listener) { w.reg.endsAs(&call{what: "do"}, &c.op, nil, c.end) })
		if c.lies != (len(v) > 0) {
			t.Errorf("%s: %v", what, v)
		}
	}
}
