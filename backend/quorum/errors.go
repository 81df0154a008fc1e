package quorum

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errSplit says that others have the nodes that are missing, or that they came
	// too late.
	errSplit = errors.New("the votes are split")

	errTooLate = errors.New("the nodes took longer than the lease lasts")

	errOverdue = backend.Fail(backend.ErrUnavailable, errors.New("no answer in time"))

	// errSilent is why a node is not asked, or not waited for any more.
	errSilent = backend.Fail(backend.ErrUnavailable, errors.New("the node does not answer"))

	// errSpared is likewise, of a node that may have come back: others seemed to be enough.
	errSpared = backend.Fail(backend.ErrUnavailable, errors.New("the node does not answer"))

	// errHalfBroken is why a hold may go on though nodes have ended their parts of it.
	errHalfBroken = errors.New("too few nodes have ended a part of the hold, and one does not answer")

	// errNotRenewed is why a hold is not renewed whose last renewals have not come back.
	errNotRenewed = errors.New("too few nodes have answered the last renewal")
)

// kindOf is the kind of failure of a node. One that has no kind is a node that
// is not available.
func kindOf(err error) error {
	for _, kind := range []error{
		backend.ErrConflict, backend.ErrAuth, backend.ErrInvalidName, backend.ErrInvalidTTL,
		backend.ErrInvalidConfig, backend.ErrUnsupported, backend.ErrClosed,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return backend.ErrUnavailable
}

// isAnswer reports whether err, the outcome of a request, is the word of the node.
func isAnswer(err error) bool {
	_, not := votesIn(err)
	return err == nil || errors.Is(err, backend.ErrHeld) || not || kindOf(err) != backend.ErrUnavailable
}

// votesIn returns after how long the node votes, if err says that it does not yet.
func votesIn(err error) (in time.Duration, not bool) {
	if err == nil {
		return 0, false // most often, and As takes memory
	}
	var e *backend.NotReadyError
	if not = errors.As(err, &e); not {
		in = e.In
	}
	return in, not
}

// isFinal reports that telling a node the same again brings nothing new. A node that denies it may
// be allowed to do it in a moment, and keeps its part for a lease if it is not told then.
func isFinal(err error) bool {
	kind := kindOf(err)
	return err == nil || errors.Is(err, backend.ErrLost) || kind != backend.ErrUnavailable && kind != backend.ErrAuth
}

// failure says why too few nodes have granted. An error that will not go away
// tells more than one that may. Called with h.mu held.
func (h *hold) failure() error {
	kind := error(backend.ErrUnavailable)
	for i := range h.votes {
		if v := &h.votes[i]; v.state == denied && kind == backend.ErrUnavailable {
			kind = kindOf(v.err)
		}
	}
	var why []error
	for i := range h.votes {
		if v := &h.votes[i]; v.isOut() && kindOf(v.err) == kind {
			why = append(why, nodeError(i, v.err))
		}
	}
	return backend.Fail(kind, errors.Join(why...))
}

func nodeError(i int, err error) error { return fmt.Errorf("node %d: %w", i+1, err) }

func invalid(problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, errors.New(problem))
}
