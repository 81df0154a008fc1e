package dlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// Do runs f while holding l. f's context ends if the lock is lost; a Lock call
// with it enters l again. The lease's Token fences what f writes.
//
// Do returns f's error. If the lock was lost while f ran, it returns ErrLost
// with f's error, also if f returned nil: the work was not protected to the
// end. So it does with ErrClosed if the client was closed. That an unlock did not
// reach the server is no failure of f: it goes to the client's hooks and logger,
// and the lock frees itself. If f panics, Do unlocks and panics on.
func Do(ctx context.Context, l Locker, f func(ctx context.Context, lease *Lease) error) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	_, err = lease.run(ctx, f)
	return err
}

// TryDo is Do, but returns ErrHeld without running f if the lock is held.
func TryDo(ctx context.Context, l Locker, f func(ctx context.Context, lease *Lease) error) error {
	lease, err := l.TryLock(ctx)
	if err != nil {
		return err
	}
	_, err = lease.run(ctx, f)
	return err
}

// run runs f and unlocks l. It reports whether l was lost before.
func (l *Lease) run(ctx context.Context, f func(context.Context, *Lease) error) (lost bool, err error) {
	defer func() {
		end := l.Unlock(ctx)
		lost = errors.Is(end, ErrLost)
		if lost || errors.Is(l.Err(), ErrClosed) {
			err = errors.Join(end, err)
		}
	}()
	return false, f(l.Context(ctx), l)
}

// Lead holds l for as long as it can, and runs f for each term that it does.
// f's context ends with the term, when the lock is lost or ctx is done; f must
// return soon then. After a term Lead unlocks l, and stands again.
//
// Lead returns when ctx is done, with its cause. It returns earlier if f fails
// within a term, with f's error, or if the lock cannot be had at all: a bad
// name, a refused password, a closed client. A server that does not answer is
// asked again, with growing pauses.
func Lead(ctx context.Context, l Locker, f func(ctx context.Context, lease *Lease) error) error {
	if ctx == nil {
		return newError("lock", "", errNilContext)
	}
	pause := backend.Backoff{}
	for {
		lease, err := l.Lock(ctx)
		lost := errors.Is(err, ErrLost)
		if err == nil {
			pause.Reset()
			lost, err = lease.run(ctx, f)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, lost:
		case lease == nil && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld)):
			backend.Sleep(ctx, pause.Next())
		default:
			return err
		}
	}
}
