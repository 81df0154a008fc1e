// Package changeover checks that the versions of a program exclude one another while it
// changes from another lock to this library's.
//
// There are three: Before holds the old lock, After the new one, and Both the new one
// and inside it the old one. Before and Both are deployed beside each other, and so are
// Both and After, but never Before and After.
package changeover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

const (
	limit  = 2 * time.Minute        // for what has to happen
	glance = 300 * time.Millisecond // for what must not happen
	told   = 15 * time.Second       // for a waiter who is told of a release: an RLock's sleeps for 30 s if not
	cycles = 10
)

// A Program does work while it holds the lock of that name.
type Program func(ctx context.Context, name string, work func(context.Context) error) error

// Versions are the three versions of a program, two processes of each.
type Versions struct {
	Before, Both, After [2]Program

	New *dlock.Client // of a process beside those, on the same server

	// TakeOld takes the old lock away from its holder. It is nil where an old lock ends by
	// the clock alone. TakeNew does it with the new one where Client.Break cannot.
	TakeOld, TakeNew func(ctx context.Context, name string) error
}

// Process returns the versions of a program as one process has them, with its client and
// with what the old lock needs.
func Process[Old any](client *dlock.Client, old Old,
	before func(context.Context, Old, string, func(context.Context) error) error,
	both func(context.Context, *dlock.Client, Old, string, func(context.Context) error) error,
	after func(context.Context, *dlock.Client, string, func(context.Context) error) error,
) (Program, Program, Program) {
	return func(ctx context.Context, name string, work func(context.Context) error) error {
			return before(ctx, old, name, work)
		}, func(ctx context.Context, name string, work func(context.Context) error) error {
			return both(ctx, client, old, name, work)
		}, func(ctx context.Context, name string, work func(context.Context) error) error {
			return after(ctx, client, name, work)
		}
}

// A T is a testing.T.
type T interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
	Context() context.Context
}

// Open opens a client for one test.
func Open(t T, url string) *dlock.Client {
	t.Helper()
	client, err := dlock.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	return client
}

// Check makes every check there is.
func (v Versions) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return errors.Join(
		v.strangers(ctx),
		v.pairs(ctx),
		contend(ctx, "both with before", v.Before[0], v.Both[0], v.Before[1], v.Both[1]),
		contend(ctx, "both with after", v.After[0], v.Both[0], v.After[1], v.Both[1]),
		v.losses(ctx),
	)
}

// strangers fails unless Before and After hold at once, which is why they must not be
// deployed together. It also shows that two in one lock would be seen.
func (v Versions) strangers(ctx context.Context) error {
	inside := false
	err := v.Before[0](ctx, "strangers", func(ctx context.Context) error {
		return v.After[0](ctx, "strangers", func(context.Context) error {
			inside = true
			return nil
		})
	})
	if err != nil || !inside {
		return errors.Join(fmt.Errorf("before and after at once: inside %t", inside), err)
	}
	return nil
}

// pairs lets each version that may meet another hold the lock while the other asks for it.
func (v Versions) pairs(ctx context.Context) error {
	return errors.Join(
		excludes(ctx, "before, then both", v.Before[0], v.Both[0]),
		excludes(ctx, "both, then before", v.Both[0], v.Before[0]),
		excludes(ctx, "both, then both", v.Both[0], v.Both[1]),
		excludes(ctx, "both, then after", v.Both[0], v.After[0]),
		excludes(ctx, "after, then both", v.After[0], v.Both[0]),
	)
}

// excludes fails if second is in the lock while first is, or never.
func excludes(ctx context.Context, name string, first, second Program) error {
	entered, leave := make(chan struct{}), make(chan struct{})
	firstEnded, secondEnded := make(chan error, 1), make(chan error, 1)
	var inside atomic.Bool
	go func() {
		firstEnded <- first(ctx, name, func(context.Context) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	select {
	case <-entered:
	case err := <-firstEnded:
		return errors.Join(fmt.Errorf("%s: the first never entered", name), err)
	}
	go func() {
		secondEnded <- second(ctx, name, func(context.Context) error {
			inside.Store(true)
			return nil
		})
	}()
	select {
	case err := <-secondEnded:
		close(leave)
		return errors.Join(fmt.Errorf("%s: the second did not wait", name), errors.Join(err, <-firstEnded))
	case <-time.After(glance):
	}
	close(leave)
	left := time.Now()
	err := errors.Join(<-firstEnded, <-secondEnded)
	if took := time.Since(left); err != nil || !inside.Load() || took > told {
		return errors.Join(fmt.Errorf("%s: the second entered: %t, after %v", name, inside.Load(), took), err)
	}
	return nil
}

// contend has all programs take the lock again and again. Nobody may be in it together
// with another, and all have to come to their end.
func contend(ctx context.Context, name string, all ...Program) error {
	var inside, overlaps, count atomic.Int32
	failed := make([]error, len(all))
	var done sync.WaitGroup
	for i, p := range all {
		done.Go(func() {
			for range cycles {
				failed[i] = errors.Join(failed[i], p(ctx, name, func(context.Context) error {
					if inside.Add(1) > 1 {
						overlaps.Add(1)
					}
					n := count.Load()
					time.Sleep(time.Millisecond) // what the work takes
					count.Store(n + 1)
					inside.Add(-1)
					return nil
				}))
			}
		})
	}
	done.Wait()
	err := errors.Join(failed...)
	if err == nil && overlaps.Load() == 0 && int(count.Load()) == cycles*len(all) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %d overlaps, %d of %d cycles", name, overlaps.Load(), count.Load(), cycles*len(all)), err)
}

// losses takes either lock away from Both: its work has to be told.
func (v Versions) losses(ctx context.Context) error {
	takeNew := v.TakeNew
	if takeNew == nil {
		takeNew = v.breakNew
	}
	err := v.loses(ctx, "loses the new lock", takeNew)
	if v.TakeOld != nil {
		err = errors.Join(err, v.loses(ctx, "loses the old lock", v.TakeOld))
	}
	return err
}

func (v Versions) breakNew(ctx context.Context, name string) error {
	held, err := v.New.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if len(held.Holders) != 1 {
		return errors.New("not held")
	}
	return v.New.Break(ctx, name, held.Holders[0].Token)
}

func (v Versions) loses(ctx context.Context, name string, take func(context.Context, string) error) error {
	err := v.Both[0](ctx, name, func(work context.Context) error {
		if err := take(ctx, name); err != nil {
			return fmt.Errorf("not taken: %w", err)
		}
		select {
		case <-work.Done():
			return errTold
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if !errors.Is(err, errTold) {
		return errors.Join(fmt.Errorf("%s, and its work is not told", name), err)
	}
	return nil
}

// Unaware takes the old lock away from a program whose work does not look, and returns nil:
// the program must not.
func Unaware(ctx context.Context, p Program, takeOld func(ctx context.Context, name string) error) error {
	const name = "lost unawares"
	var taken error
	err := p(ctx, name, func(context.Context) error {
		taken = takeOld(ctx, name)
		return nil
	})
	if taken != nil {
		return fmt.Errorf("not taken: %w", taken)
	}
	if err == nil {
		return errors.New("the old lock was lost while the work ran, and the program returns nil")
	}
	return nil
}

var errTold = errors.New("the work was told")
