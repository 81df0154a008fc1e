package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A TokenRegister is a Backend that can be one of several independent servers
// that decide by majority: see package quorum. Its server keeps the last token
// of each name where a holder can raise it, and knows since when it has kept
// what it knows.
type TokenRegister interface {
	// Vote is Acquire on one server of several. It fails with a
	// [NotReadyError] where the server's memory does not reach back far
	// enough: a server that restarted without its data may have forgotten a
	// hold that others count on. A reader that must not wait is
	// refused with [ErrBehindWriter] rather than ErrHeld where that is why, if the server can tell.
	Vote(ctx context.Context, r Request, b Ballot) (*Hold, error)

	// RaiseToken has the server know h by token, if h still stands and is known by a
	// lesser one: Inspect shows it, Break goes by it, and every later token of h.Name
	// exceeds it. What h.Token says does not change, nor by what token other holds are
	// known. It reports ErrLost if h is gone, and returns within h.TTL whatever the
	// server does.
	RaiseToken(ctx context.Context, h *Hold, token uint64) error

	// LowerToken is RaiseToken with a token that is less than h.Token: other servers have
	// known h by it for longer, and it is the last that h is given.
	LowerToken(ctx context.Context, h *Hold, token uint64) error
}

// ErrBehindWriter is the ErrHeld of a server at which a reader would have the lock beside others that
// read, if a writer did not wait. A server at which no writer waits may grant it.
var ErrBehindWriter = Fail(ErrHeld, errors.New("a writer waits for it"))

// A Ballot is what the servers of a quorum are asked beyond a Request.
type Ballot struct {
	// Token is a proposal. A server that makes a new token makes it no less
	// than this, so that all of them make the same. It disregards a proposal
	// that is ahead of its clock by more than TokenLead, and may disregard any.
	Token uint64

	// Rejoin is for how long a server must have kept its memory to take part.
	Rejoin time.Duration
}

// TokenLead is how far a proposed token may be ahead of a server's clock.
const TokenLead = 100 * time.Millisecond

// A NotReadyError says that a server does not vote yet. It is ErrUnavailable.
type NotReadyError struct {
	In time.Duration // when it will
}

// Error implements error.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("the server knows nothing of the time before it started, and takes part in %v", e.In.Round(time.Millisecond))
}

// Unwrap returns ErrUnavailable.
func (e *NotReadyError) Unwrap() error { return ErrUnavailable }
