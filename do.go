package dlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Do runs f while holding l. f's context ends if the lock is lost; a Lock call
// with it enters l again. The lease's Token fences what f writes.
//
// Do returns f's error. If the lock was lost while f ran, it returns ErrLost
// with f's error, also if f returned nil: the work was not protected to the
// end. If the client was closed, it does so with ErrClosed. An unlock that does not
// reach the server is no failure of f: the client's hooks and logger are told, and
// the lock frees itself. If f panics, Do unlocks and panics on. A nil f or l is
// ErrInvalidConfig.
func Do(ctx context.Context, l Locker, f func(ctx context.Context, lease *Lease) error) error {
	return doUnder(ctx, "lock", Locker.Lock, l, f)
}

// TryDo is Do, but fails with ErrHeld, without running f, if the lock is held. An
// ErrHeld that f returns looks the same but for the Name of its Error.
func TryDo(ctx context.Context, l Locker, f func(ctx context.Context, lease *Lease) error) error {
	return doUnder(ctx, "trylock", Locker.TryLock, l, f)
}

// doUnder acquires l by lock, runs f and unlocks. It returns f's error, and that of the end
// of the lease if f was not protected to the end.
func doUnder(ctx context.Context, op string, lock func(Locker, context.Context) (*Lease, error), l Locker, f func(context.Context, *Lease) error) error {
	if err := checkDo(op, l, f); err != nil {
		return err
	}
	lease, err := lock(l, ctx)
	if err != nil {
		return err
	}
	end, err := lease.runTerm(ctx, f)
	if end == nil || sameEnd(end, err) {
		return cmp.Or(end, err)
	}
	return backend.Join(end, err)
}

// checkDo reports what is missing of what Do, TryDo and Lead are called with.
func checkDo(op string, l Locker, f func(context.Context, *Lease) error) error {
	switch {
	case l == nil:
		return newError(op, "", errNilLocker)
	case f == nil:
		return newError(op, "", errNilFunc)
	}
	return nil
}

// sameEnd reports whether err says no more than that the lease has ended as end says:
// it is the cause of the lease's context.
func sameEnd(end, err error) bool {
	a, ok := end.(*Error)
	b, also := err.(*Error)
	return ok && also && a.Name == b.Name && a.Kind == b.Kind
}

// runTerm runs f and unlocks l. End says why the lease ended before f returned; it is
// nil if the lease lasted.
func (l *Lease) runTerm(ctx context.Context, f func(context.Context, *Lease) error) (end, err error) {
	defer func() {
		end = l.Unlock(ctx)
		if kindOf(end, nil) != ErrLost && !errors.Is(l.Err(), ErrClosed) {
			end = nil
		}
	}()
	return nil, f(l.Context(ctx), l)
}

// Lead holds l for as long as it can, and runs f for each term that it does.
// f's context ends with the term, when the lock is lost or ctx is done; f must
// return soon then. After a term Lead unlocks l. When f returns nil, Lead stands for
// the next term: to stop leading, end ctx.
//
// Lead never returns nil. It returns when ctx is done, with its cause, and f's error if
// that is another. It returns earlier if f fails within a term, with f's error, or if the
// lock cannot be had at all: a bad name, a refused password, a closed client. What f
// returns when its term was lost goes to the client's logger. Lead pauses, longer each
// time, when the server does not answer and after terms shorter than a second.
func Lead(ctx context.Context, l Locker, f func(ctx context.Context, lease *Lease) error) error {
	if ctx == nil {
		return newError("lock", "", errNilContext)
	}
	if err := checkDo("lock", l, f); err != nil {
		return err
	}
	pause := backend.Backoff{}
	for {
		lasted, err, final := serveTerm(ctx, l, f)
		switch {
		case ctx.Err() != nil:
			return leadError(ctx, err)
		case final:
			return err
		case lasted >= longTerm:
			pause.Reset()
		default:
			backend.Sleep(ctx, pause.Next())
		}
	}
}

// longTerm is how long a term of Lead lasts that is followed by the next at once.
const longTerm = time.Second

// serveTerm waits for one term of leadership and runs f in it. Lasted is how long the term
// was, or a wait that ended because the lock was held. If final is true, Lead returns err.
func serveTerm(ctx context.Context, l Locker, f func(context.Context, *Lease) error) (lasted time.Duration, err error, final bool) {
	began := time.Now()
	lease, err := l.Lock(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return 0, nil, false
	case errors.Is(err, ErrHeld):
		return time.Since(began), err, false
	default:
		return 0, err, !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLost)
	}
	began = time.Now()
	end, err := lease.runTerm(ctx, f)
	lasted = time.Since(began)
	switch {
	case kindOf(end, nil) == ErrLost:
		if err != nil && ctx.Err() == nil && !sameEnd(end, err) {
			lease.logTermEnd(err)
		}
		return lasted, err, false
	case end != nil && !sameEnd(end, err):
		return lasted, backend.Join(end, err), true
	case end != nil:
		return lasted, end, true
	}
	return lasted, err, err != nil
}

// leadError is the error of Lead when ctx is done: the cause of ctx, joined with f's
// error if that is another.
func leadError(ctx context.Context, err error) error {
	end := context.Cause(ctx)
	if how := ctx.Err(); !errors.Is(end, how) {
		end = &leadEnd{end, how}
	}
	if err == nil || errors.Is(end, err) {
		return end
	}
	return backend.Join(end, err)
}

// A leadEnd is the cause of the context of Lead, and how that has ended.
type leadEnd struct{ cause, how error }

func (e *leadEnd) Error() string   { return e.cause.Error() }
func (e *leadEnd) Unwrap() []error { return []error{e.cause, e.how} }
