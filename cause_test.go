package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// What the hook Closed is told of a release that was not confirmed has the cause of the context of Close,
// as the error of Close has, and the event of a lock of several names.
func TestClosedEventHasTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := errors.New("the machine goes down")
		told := make(map[string]error)
		o := dlock.Options{TTL: time.Hour}
		o.Hooks.Closed = func(_ context.Context, e dlock.ClosedEvent) { told[e.Name] = e.Err }
		_, ba, a, _ := pair(t, o)
		lock(t, a.Mutex("x"))
		lock(t, a.Multi([]string{"p", "q"}))
		ba.Cut()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, mine)
		defer cancel()
		is(t, a.Close(ctx), mine)
		for name, err := range told {
			if !errors.Is(err, mine) {
				t.Errorf("%s: %T %v", name, err, err)
			}
		}
		ba.Heal()
	})
}

// A kindly error says of which kind it is by a method, as errors.Is allows.
type kindly struct{ kind error }

func (k kindly) Error() string        { return "no" }
func (k kindly) Is(target error) bool { return target == k.kind }
func (k kindly) Unwrap() error        { return errors.New("what its driver said") }

type kindBackend struct {
	*memory.Backend
	err error
}

func (b kindBackend) Acquire(context.Context, backend.Request) (*backend.Hold, error) {
	return nil, b.err
}

// The error of a backend from elsewhere is of the kind that errors.Is finds in it.
func TestKindByAMethod(t *testing.T) {
	for _, k := range []error{dlock.ErrHeld, dlock.ErrAuth, dlock.ErrInvalidConfig} {
		c := client(t, kindBackend{memory.New(nil), kindly{k}}, dlock.Options{})
		_, err := c.Mutex("x").TryLock(t.Context())
		if kind := err.(*dlock.Error).Kind; kind != k {
			t.Errorf("the kind is %v, want %v", kind, k)
		}
		if got, want := dlock.ErrorType(kindly{k}), dlock.ErrorType(k); got != want {
			t.Errorf("the type is %s, want %s", got, want)
		}
	}
}

// A plainCause fails with the cause of the context as it is, as net/http does.
type plainCause struct{ *memory.Backend }

func (plainCause) Reenter(ctx context.Context, _ *backend.Hold, _ int, _ int64) error {
	<-ctx.Done()
	return backend.Fail(backend.ErrUnavailable, context.Cause(ctx))
}

// An entry is not answered when another lock is lost, with whose context it was asked for. Its own lock
// is not lost, whatever the backend says of the context.
func TestEntryThatALossElsewhereEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewServer()
		c := client(t, plainCause{memory.New(s)}, dlock.Options{})
		other, x := lock(t, c.Mutex("other")), lock(t, c.Mutex("x"))
		time.AfterFunc(time.Second, func() { s.Evict("other") })
		_, err := c.Mutex("x").Lock(x.Context(other.Context(t.Context())))
		is(t, err, dlock.ErrUnavailable)
		if x.Err() != nil {
			t.Errorf("x has ended: %v", x.Err())
		}
	})
}

// An Unlock that does not reach the server is no failure of what Do has run, whatever the cause that ends
// its context.
func TestDoWhoseUnlockALossElsewhereEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, _ := pair(t, dlock.Options{TTL: time.Hour})
		ctx, cancel := context.WithCancelCause(t.Context())
		is(t, dlock.Do(ctx, a.Mutex("x"), func(context.Context, *dlock.Lease) error {
			ba.Cut()
			time.AfterFunc(time.Second, func() { cancel(dlock.ErrLost) })
			return nil
		}), nil)
		ba.Heal()
	})
}

// What a program gives as the cause of a context, which may be a failure from anywhere, is not
// taken for what the server has said of the lock.
func TestCauseOfAContextIsNoWord(t *testing.T) {
	causes := []error{dlock.ErrLost, fmt.Errorf("job 7: %w", dlock.ErrLost), dlock.ErrClosed, dlock.ErrHeld, dlock.ErrAuth}
	calls := map[string]func(c *dlock.Client, l *dlock.Lease, ctx context.Context) error{
		"lock": func(c *dlock.Client, _ *dlock.Lease, ctx context.Context) error { return failsToLock(c, "y", ctx) },
		"enter": func(c *dlock.Client, l *dlock.Lease, ctx context.Context) error {
			return failsToLock(c, "x", l.Context(ctx))
		},
		"downgrade": func(_ *dlock.Client, l *dlock.Lease, ctx context.Context) error { return l.Downgrade(ctx) },
	}
	for name, call := range calls {
		for _, cause := range causes {
			t.Run(name+"/"+dlock.ErrorType(cause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, ba, a, _ := pair(t, dlock.Options{})
					lease := lock(t, a.Mutex("x"))
					ba.Delay(time.Second)
					ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second/2, cause)
					defer cancel()
					err := call(a, lease, ctx)
					is(t, err, dlock.ErrUnavailable, context.DeadlineExceeded, cause)
					if kind := err.(*dlock.Error).Kind; kind != dlock.ErrUnavailable || lease.Err() != nil {
						t.Errorf("the kind is %v, the lease %v", kind, lease.Err())
					}
					ba.Delay(0)
					unlock(t, lease)
				})
			})
		}
	}
}

func failsToLock(c *dlock.Client, name string, ctx context.Context) error {
	_, err := c.Mutex(name).Lock(ctx)
	return err
}

// An Unlock whose context ends with such a cause has not been confirmed: the client goes on trying.
func TestUnlockThatALossElsewhereEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ba, a, b := pair(t, dlock.Options{TTL: time.Hour})
		lease := lock(t, a.Mutex("x"))
		several := lock(t, a.Multi([]string{"y", "z"}))
		ba.Cut()
		for _, l := range []*dlock.Lease{lease, several} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, dlock.ErrLost)
			defer cancel()
			err := l.Unlock(ctx)
			if e, ok := err.(*dlock.Error); !ok || e.Kind != dlock.ErrUnavailable || dlock.ErrorType(err) != "unavailable" {
				t.Errorf("%s: %v, of type %s", l.Name(), err, dlock.ErrorType(err))
			}
		}
		ba.Heal()
		start := time.Now()
		unlock(t, lock(t, b.Mutex("x")))
		if waited := time.Since(start); waited > time.Minute {
			t.Errorf("the lock was free after %v", waited)
		}
	})
}

// A halfLost server has lost the lock y, and does not answer the first release of z.
type halfLost struct {
	*memory.Backend
	answers *atomic.Bool
}

func (b halfLost) Release(ctx context.Context, h *backend.Hold) error {
	if h.Name == "z" && !b.answers.Swap(true) {
		<-ctx.Done()
		return backend.WaitEnded(ctx, false)
	}
	if err := b.Backend.Release(ctx, h); err != nil || h.Name == "z" {
		return err
	}
	return backend.ErrLost
}

func (b halfLost) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var all sync.WaitGroup
	for _, h := range holds {
		all.Go(func() { report(h, b.Release(ctx, h)) })
	}
	all.Wait()
}

// Of two locks one is lost, and the release of the other ends with its context, because of a lock elsewhere
// that somebody has broken. Nobody has broken these two.
func TestLossBesideACauseThatIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []dlock.LossCause
		o := dlock.Options{TTL: time.Hour}
		o.Hooks.Lost = func(e dlock.LostEvent) { told = append(told, e.Cause) }
		c := client(t, halfLost{memory.New(nil), new(atomic.Bool)}, o)
		both := lock(t, c.Multi([]string{"y", "z"}))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(backend.Fail(dlock.ErrLost, dlock.ErrBroken)) })
		err := both.Unlock(ctx)
		is(t, err, dlock.ErrLost)
		if got := dlock.ErrorType(err); got != "lost" || !slices.Equal(told, []dlock.LossCause{dlock.LossTaken}) {
			t.Errorf("the type is %s, the causes are %v", got, told)
		}
		time.Sleep(time.Minute) // z is released anew
	})
}

// A lock that is asked for under one that was broken fails with that, and is of its type.
func TestTypeOfACallUnderABrokenLock(t *testing.T) {
	c := client(t, memory.New(nil), dlock.Options{})
	lease := lock(t, c.Mutex("x"))
	ctx := lease.Context(t.Context())
	is(t, c.Break(t.Context(), "x", lease.Token()), nil)
	<-ctx.Done()
	_, err := c.Mutex("y").Lock(ctx)
	is(t, err, dlock.ErrLost, dlock.ErrBroken)
	if got := dlock.ErrorType(err); got != "broken" {
		t.Errorf("the type is %s", got)
	}
}
