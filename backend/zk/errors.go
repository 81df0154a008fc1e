package zk

import (
	"errors"
	"slices"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errSessionEnded means that the session has ended, and with it all its nodes.
	errSessionEnded = errors.New("the session is over")

	// errCallerLeft means that nobody waits for the outcome any more.
	errCallerLeft = errors.New("the caller has left")

	// errWaiterRemoved means that somebody has deleted a node that waited.
	errWaiterRemoved = errors.New("the node has been removed")

	errInvalidAnswer = errors.New("the server's answer makes no sense")
	errNoAnswer      = errors.New("no answer")
	errExpired       = errors.New("the session has expired")
	errSilent        = errors.New("the server has not been heard of for longer than a session lasts")
	errDisconnected  = errors.New("the connection is broken")
	errHoldRemoved   = errors.New("the hold's node has been removed")
)

// definiteErrors are the errors of requests that the server has not carried out. After
// any other error it may have.
var definiteErrors = []error{
	gozk.ErrNoNode,
	gozk.ErrNodeExists,
	gozk.ErrBadVersion,
	gozk.ErrNotEmpty,
	gozk.ErrNoAuth,
	gozk.ErrAuthFailed,
	gozk.ErrInvalidACL,
	gozk.ErrInvalidPath,
	gozk.ErrNoChildrenForEphemerals,
	gozk.ErrBadArguments,
	backend.ErrHeld,
}

// isUnclear reports whether a request may have been carried out or not.
func isUnclear(err error) bool {
	return err != nil && !errors.Is(err, errSessionEnded) && !isOverQuota(err) &&
		!slices.ContainsFunc(definiteErrors, func(definite error) bool { return errors.Is(err, definite) })
}

// isUnimplemented reports whether the server does not know a request. The driver has no
// value for that code.
func isUnimplemented(err error) bool {
	return err != nil && err.Error() == "unknown error: -6"
}

// isOverQuota reports whether a node was not created because there are too many. The
// driver has no value for that code either.
func isOverQuota(err error) bool { return err != nil && err.Error() == "unknown error: -125" }

// classify wraps an error of the driver in an error of package backend. A missing node is
// no error.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, gozk.ErrNoNode):
		return nil
	case errors.Is(err, gozk.ErrNoAuth), errors.Is(err, gozk.ErrAuthFailed):
		return backend.Fail(backend.ErrAuth, err)
	case errors.Is(err, gozk.ErrInvalidACL), errors.Is(err, gozk.ErrInvalidPath):
		return backend.Fail(backend.ErrInvalidConfig, err)
	case errors.Is(err, gozk.ErrNoChildrenForEphemerals):
		return backend.Fail(backend.ErrConflict, err)
	case backend.HasKind(err):
		return err
	}
	return backend.Fail(backend.ErrUnavailable, err)
}

func ignoreNoNode(err error) error {
	if errors.Is(err, gozk.ErrNoNode) {
		return nil
	}
	return err
}
