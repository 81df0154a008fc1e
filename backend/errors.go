package backend

import (
	"context"
	"errors"
)

// The kinds of failure. Package dlock exports the same values.
var (
	ErrHeld          = errors.New("dlock: lock is held")
	ErrLost          = errors.New("dlock: lock was lost")
	ErrClosed        = errors.New("dlock: client is closed")
	ErrInvalidName   = errors.New("dlock: invalid name")
	ErrInvalidTTL    = errors.New("dlock: invalid TTL")
	ErrInvalidConfig = errors.New("dlock: invalid configuration")
	ErrUnsupported   = errors.New("dlock: not supported by this backend")
	ErrUnavailable   = errors.New("dlock: backend is unavailable")
	ErrAuth          = errors.New("dlock: access denied")
	ErrConflict      = errors.New("dlock: the key is used by something else")
)

// Fail returns an error that is both kind and err: errors.Is and errors.As
// find either. A nil err leaves kind alone.
func Fail(kind, err error) error {
	if err == nil {
		return kind
	}
	return &failure{kind, err}
}

type failure struct{ kind, err error }

func (f *failure) Error() string   { return f.kind.Error() + ": " + f.err.Error() }
func (f *failure) Unwrap() []error { return []error{f.kind, f.err} }

// WaitEnded is the error of an Acquire whose ctx is done: ErrHeld if the
// server has said that the lock is held or the request queued, otherwise
// ErrUnavailable, either with the cause of ctx.
func WaitEnded(ctx context.Context, answered bool) error {
	if answered {
		return Fail(ErrHeld, context.Cause(ctx))
	}
	return Fail(ErrUnavailable, context.Cause(ctx))
}
