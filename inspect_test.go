package dlock_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

func TestInspectTellsHoldersAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{Prefix: "app/", Label: "common"})
		free, err := a.Inspect(t.Context(), "x")
		if is(t, err, nil); len(free.Holders)+len(free.Waiters) != 0 {
			t.Errorf("a free lock: %+v", free)
		}
		held := lock(t, a.Mutex("x", dlock.WithLabel("job 1")))
		granted := make(chan *dlock.Lease)
		go func() {
			l, err := b.RWMutex("x").RLock(t.Context())
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		synctest.Wait()

		s, err := b.Inspect(t.Context(), "x")
		is(t, err, nil)
		if len(s.Holders) != 1 || len(s.Waiters) != 1 {
			t.Fatalf("%+v", s)
		}
		holder, waiter := s.Holders[0], s.Waiters[0]
		if holder.Label != "job 1" || holder.Mode != backend.Exclusive || holder.Token != held.Token() || holder.Left <= 0 {
			t.Errorf("holder: %+v", holder)
		}
		if waiter.Label != "common" || waiter.Mode != backend.Shared || waiter.Client == holder.Client {
			t.Errorf("waiter: %+v", waiter)
		}
		unlock(t, held)
		unlock(t, <-granted)
	})
}

// The prefix of a client is neither asked for nor shown, and names of other prefixes
// are not found.
func TestNamesOfOnePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a := client(t, memory.New(s), dlock.Options{Prefix: "a/"})
		b := client(t, memory.New(s), dlock.Options{Prefix: "b/"})
		for _, l := range []*dlock.Mutex{a.Mutex("orders/1"), a.Mutex("orders/2"), a.Mutex("users/1"), b.Mutex("orders/3")} {
			lease := lock(t, l)
			defer unlock(t, lease)
		}
		for prefix, want := range map[string]string{"": "orders/1 orders/2 users/1", "orders/": "orders/1 orders/2", "none": ""} {
			var names []string
			for name, err := range a.Names(t.Context(), prefix) {
				is(t, err, nil)
				names = append(names, name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%q: got %q, want %q", prefix, got, want)
			}
		}
		for range a.Names(t.Context(), "") {
			break // a consumer may stop at any name
		}
	})
}

func TestBreakTakesTheLockAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, b := pair(t, dlock.Options{Prefix: "app/"})
		held := lock(t, a.Mutex("x"))
		is(t, b.Break(t.Context(), "x", held.Token()+1), dlock.ErrNotHeld)
		is(t, b.Break(t.Context(), "y", held.Token()), dlock.ErrNotHeld)
		is(t, held.Err(), nil)

		next := make(chan *dlock.Lease)
		go func() {
			l, err := b.Mutex("x").Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		synctest.Wait()
		is(t, b.Break(t.Context(), "x", held.Token()), nil)
		after := <-next
		if after.Token() <= held.Token() {
			t.Errorf("token %d after %d", after.Token(), held.Token())
		}
		time.Sleep(dlock.DefaultTTL)
		is(t, held.Err(), dlock.ErrLost, dlock.ErrBroken)
		is(t, a.Break(t.Context(), "x", held.Token()), dlock.ErrNotHeld)
		is(t, after.Err(), nil)
		unlock(t, after)
	})
}

// questions are the calls that ask the server about locks.
var questions = map[string]func(context.Context, *dlock.Client) error{
	"inspect": func(ctx context.Context, c *dlock.Client) error { _, err := c.Inspect(ctx, "x"); return err },
	"break":   func(ctx context.Context, c *dlock.Client) error { return c.Break(ctx, "x", 1) },
	"ping":    func(ctx context.Context, c *dlock.Client) error { return c.Ping(ctx) },
	"names": func(ctx context.Context, c *dlock.Client) error {
		for _, err := range c.Names(ctx, "") {
			return err
		}
		return nil
	},
	"examine": func(ctx context.Context, c *dlock.Client) error { return c.Examine(ctx, func(dlock.Finding) {}) },
}

// A question that cannot be asked fails with an *Error of its own operation.
func TestQuestionsThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, closed := pair(t, dlock.Options{})
		is(t, closed.Close(t.Context()), nil)
		plain := client(t, struct{ backend.Backend }{memory.New(nil)}, dlock.Options{})
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		for op, ask := range questions {
			for want, err := range map[error]error{
				dlock.ErrUnsupported: ask(t.Context(), plain),
				dlock.ErrClosed:      ask(t.Context(), closed),
				errShutdown:          ask(ended, a),
			} {
				is(t, err, want)
				var e *dlock.Error
				if !errors.As(err, &e) || e.Op != op {
					t.Errorf("%s: %#v", op, err)
				}
			}
			is(t, ask(nil, a), dlock.ErrInvalidConfig)
			is(t, ask(t.Context(), nil), dlock.ErrInvalidConfig)
			is(t, ask(t.Context(), new(dlock.Client)), dlock.ErrInvalidConfig)
		}
		is(t, a.Examine(t.Context(), nil), dlock.ErrInvalidConfig)
		_, err := a.Inspect(t.Context(), "")
		is(t, err, dlock.ErrInvalidName)
		is(t, a.Break(t.Context(), strings.Repeat("x", backend.MaxName+1), 1), dlock.ErrInvalidName)
	})
}

// A server that does not answer is not waited for without end.
func TestQuestionsToASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{})
		ba.Cut()
		defer ba.Heal()
		for _, op := range []string{"inspect", "names", "break", "ping"} {
			start := time.Now()
			is(t, questions[op](t.Context(), a), dlock.ErrUnavailable)
			if took := time.Since(start); took > backend.FirstAnswer {
				t.Errorf("%s: after %v", op, took)
			}
		}
	})
}

// A hold is not handed over to a goroutine that wants another label, which the server
// would not show.
func TestALabelIsThatOfTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, a, _ := pair(t, dlock.Options{Label: "one"})
		first := lock(t, a.Mutex("x"))
		next := make(chan *dlock.Lease)
		go func() {
			l, err := a.Mutex("x", dlock.WithLabel("two")).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		synctest.Wait()
		unlock(t, first)
		second := <-next
		s, err := a.Inspect(t.Context(), "x")
		is(t, err, nil)
		if len(s.Holders) != 1 || s.Holders[0].Label != "two" {
			t.Errorf("%+v", s)
		}
		if first.Label() != "one" || second.Label() != "two" {
			t.Errorf("labels %q, %q", first.Label(), second.Label())
		}
		unlock(t, second)

		reader := func(label string) *dlock.Lease {
			l, err := a.RWMutex("y", dlock.WithLabel(label)).RLock(t.Context())
			is(t, err, nil)
			return l
		}
		for _, label := range []string{"r1", "r2"} {
			defer unlock(t, reader(label))
		}
		s, err = a.Inspect(t.Context(), "y")
		is(t, err, nil)
		if len(s.Holders) != 2 || s.Holders[0].Label == s.Holders[1].Label {
			t.Errorf("%+v", s)
		}
	})
}

func TestWhatALeaseTellsOfItself(t *testing.T) {
	_, _, a, _ := pair(t, dlock.Options{Prefix: "app/", Label: "one"})
	l := lock(t, a.RWMutex("x"))
	if l.Name() != "x" || l.Shared() || l.Label() != "one" {
		t.Errorf("%q %v %q", l.Name(), l.Shared(), l.Label())
	}
	is(t, l.Downgrade(t.Context()), nil)
	if !l.Shared() {
		t.Error("still exclusive after Downgrade")
	}
	unlock(t, l)
	multi := lock(t, a.Multi([]string{"z", "y"}, dlock.WithLabel("both")))
	if multi.Name() != "y z" || multi.Shared() || multi.Label() != "both" {
		t.Errorf("%q %v %q", multi.Name(), multi.Shared(), multi.Label())
	}
	unlock(t, multi)
	var zero *dlock.Lease
	if zero.Name() != "" || zero.Shared() || zero.Label() != "" {
		t.Error("a zero lease tells something")
	}
	_, err := a.Mutex("x", dlock.WithLabel("a\x00b")).Lock(t.Context())
	is(t, err, dlock.ErrInvalidConfig)
}

func TestInfo(t *testing.T) {
	c, err := dlock.Open(t.Context(), "memory://?dlock.label=secret", nil)
	is(t, err, nil)
	defer c.Close(context.Background())
	is(t, c.Ping(t.Context()), nil)
	if got, want := c.Info(), (dlock.Info{Backend: "memory", Address: "memory://"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if new(dlock.Client).Info() != (dlock.Info{}) {
		t.Error("a zero client tells something")
	}
}

// A client that inspects only takes no lock in any way, and does all that asks.
func TestInspectOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		a, only := client(t, memory.New(s), dlock.Options{}), client(t, memory.New(s), dlock.Options{InspectOnly: true})
		held := lock(t, a.Mutex("x"))
		for _, l := range []dlock.Locker{only.Mutex("y"), only.RWMutex("y").RLocker(), only.Multi([]string{"y", "z"})} {
			_, err := l.Lock(t.Context())
			is(t, err, dlock.ErrUnsupported)
			_, err = l.TryLock(t.Context())
			is(t, err, dlock.ErrUnsupported)
		}
		_, err := only.NamedLocks().Lock(t.Context(), "y")
		is(t, err, dlock.ErrUnsupported)
		shown, err := only.Inspect(t.Context(), "x")
		is(t, err, nil)
		if len(shown.Holders) != 1 || shown.Holders[0].Token != held.Token() {
			t.Errorf("%+v", shown)
		}
		is(t, only.Break(t.Context(), "x", held.Token()), nil)
		is(t, held.Unlock(t.Context()), dlock.ErrLost)
	})
}

// No call panics on a nil context. It is ErrInvalidConfig, or where the caller has given
// up a lock already, no error.
func TestNilContext(t *testing.T) {
	var none context.Context
	c := client(t, memory.New(nil), dlock.Options{})
	m := c.RWMutex("x")
	named := c.NamedLocks()
	work := func(context.Context, *dlock.Lease) error { return nil }
	err := func(_ *dlock.Lease, err error) error { return err }
	_, open := dlock.Open(none, "memory://", nil)
	_, configured := dlock.Config{URL: dlock.NewSecret("memory://")}.Open(none, nil)
	for name, got := range map[string]error{
		"open": open, "configured": configured,
		"lock": err(m.Lock(none)), "trylock": err(m.TryLock(none)), "rlock": err(m.RLock(none)), "tryrlock": err(m.TryRLock(none)),
		"multi": err(c.Multi([]string{"x", "y"}).Lock(none)), "named": err(named.Lock(none, "x")), "try named": err(named.TryLock(none, "x")),
		"do": dlock.Do(none, m, work), "trydo": dlock.TryDo(none, m, work), "lead": dlock.Lead(none, m, work),
		"downgrade": lock(t, m).Downgrade(none), "close": c.Close(none),
	} {
		var typed *dlock.Error
		if !errors.Is(got, dlock.ErrInvalidConfig) || !errors.As(got, &typed) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if lease, ok := m.Held(none); lease != nil || ok {
		t.Error("a nil context is said to be from a lease")
	}
	other := lock(t, c.Mutex("y"))
	if other.Context(none).Err() != nil {
		t.Error("no context of a live lease")
	}
	is(t, other.Unlock(none), nil)
}

// A patient backend answers in parts, one in two seconds, until all have come or ctx ends.
type patient struct {
	*memory.Backend
	parts int
}

func (b patient) Inspect(ctx context.Context, _ string) (backend.Snapshot, error) {
	for range b.parts {
		if !backend.Sleep(ctx, 2*time.Second) {
			return backend.Snapshot{}, backend.WaitEnded(ctx, false)
		}
		backend.Rest(ctx, time.Millisecond, backend.MaxRest)
	}
	backend.Sleep(ctx, time.Hour)
	if ctx.Err() != nil {
		return backend.Snapshot{}, backend.WaitEnded(ctx, false)
	}
	return backend.Snapshot{}, nil
}

func (b patient) Names(ctx context.Context, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if !yield("first", nil) {
			return
		}
		_, err := b.Inspect(ctx, "")
		yield("", err)
	}
}

// An answer in many parts may take long, but none of them may. Who is told of names may take
// long with each.
func TestLongAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, patient{memory.New(nil), 10}, dlock.Options{})
		for op, ask := range map[string]func() error{
			"inspect": func() error { _, err := c.Inspect(t.Context(), "x"); return err },
			"names": func() (last error) {
				for _, err := range c.Names(t.Context(), "") {
					time.Sleep(time.Minute)
					last = err
				}
				return last
			},
		} {
			start, pauses := time.Now(), time.Duration(0)
			if op == "names" {
				pauses = 2 * time.Minute
			}
			is(t, ask(), dlock.ErrUnavailable)
			took := time.Since(start) - pauses
			if took < 20*time.Second || took > 20*time.Second+10*backend.MaxRest+backend.FirstAnswer {
				t.Errorf("%s: given up after %v", op, took)
			}
		}
	})
}
