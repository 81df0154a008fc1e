package zk

import (
	"errors"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errOver means that the session is over, and with it all its nodes.
	errOver = errors.New("the session is over")

	// errLeft means that nobody waits for the outcome any more.
	errLeft = errors.New("the caller has left")

	// errVanished means that somebody has removed a node that waited.
	errVanished = errors.New("the node has been removed")

	errNonsense     = errors.New("the server's answer makes no sense")
	errNoAnswer     = errors.New("no answer")
	errExpired      = errors.New("the session has expired")
	errUnheard      = errors.New("the server has not been heard of for longer than a session lasts")
	errDisconnected = errors.New("the connection is broken")
	errRemoved      = errors.New("the hold's node has been removed")
)

// verdicts are the errors after which it is clear what became of a request.
// After any other it may have been carried out.
var verdicts = []error{
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

// unclear reports whether the outcome of a request is unknown.
func unclear(err error) bool {
	if err == nil || errors.Is(err, errOver) || overQuota(err) {
		return false
	}
	for _, v := range verdicts {
		if errors.Is(err, v) {
			return false
		}
	}
	return true
}

// unimplemented reports whether the server does not know a request. The driver
// has no value for that code.
func unimplemented(err error) bool {
	return err != nil && err.Error() == "unknown error: -6"
}

// overQuota reports whether a node was not made because there are too many. The
// driver has no value for that code either.
func overQuota(err error) bool { return err.Error() == "unknown error: -125" }

// kindOf adds to the driver's error of which kind it is. A node that is not
// there is no error.
func kindOf(err error) error {
	switch {
	case err == nil, errors.Is(err, gozk.ErrNoNode):
		return nil
	case errors.Is(err, gozk.ErrNoAuth), errors.Is(err, gozk.ErrAuthFailed):
		return backend.Fail(backend.ErrAuth, err)
	case errors.Is(err, gozk.ErrInvalidACL), errors.Is(err, gozk.ErrInvalidPath):
		return backend.Fail(backend.ErrInvalidConfig, err)
	case errors.Is(err, gozk.ErrNoChildrenForEphemerals):
		return backend.Fail(backend.ErrConflict, err)
	case classified(err):
		return err
	}
	return backend.Fail(backend.ErrUnavailable, err)
}

// classified reports whether err has a kind already.
func classified(err error) bool {
	for _, kind := range []error{backend.ErrHeld, backend.ErrNotHeld, backend.ErrLost, backend.ErrClosed, backend.ErrAuth, backend.ErrInvalidConfig, backend.ErrUnavailable} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
