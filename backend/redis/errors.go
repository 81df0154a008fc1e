package redis

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// fail returns err as the kind of failure that it is.
func fail(err error) error { return backend.Fail(kindOf(err), discreet(err)) }

// discreet is err without the arguments of a command that the server does not know: one
// that has no HELLO repeats the password. Of several Sentinels any may have said it.
func discreet(err error) error {
	if _, ok := wordsOf(err); !ok {
		return err
	}
	if what := withoutArguments(err.Error()); what != err.Error() {
		return errors.New(what)
	}
	return err
}

// withoutArguments is what a server says, or what is said of it, up to the arguments that it repeats.
func withoutArguments(text string) string {
	what, _, _ := strings.Cut(text, repeatedArguments)
	return what
}

// repeatedArguments stands before the arguments of a command that the server does not know.
const repeatedArguments = ", with args beginning with"

func kindOf(err error) error {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, backend.ErrClosed) {
		return backend.ErrClosed
	}
	said, ok := wordsOf(err)
	switch {
	case !ok:
		return backend.ErrUnavailable
	case redis.IsAuthError(err), redis.IsPermissionError(err),
		strings.Contains(said, "NOPERM"),
		strings.Contains(said, "executing the script can't"), // what NOPERM reads inside a script
		strings.Contains(said, "ACL failure in script"):      // and since Redis 7.2
		return backend.ErrAuth
	case strings.Contains(said, "WRONGTYPE"):
		return backend.ErrConflict
	case strings.Contains(said, "DB index is out of range"), strings.Contains(said, "cluster support disabled"):
		return backend.ErrInvalidConfig
	}
	return backend.ErrUnavailable
}

// replyOf returns what the server said if err is its reply.
func replyOf(err error) (string, bool) {
	if isMasterless(err) {
		return "", false
	}
	return wordsOf(err)
}

// masterless begins the client library's error where no Sentinel has named the master.
const masterless = "redis: all sentinels specified in configuration are unreachable"

// isMasterless reports that Sentinels were asked for the master in vain: none is there, or they know none, or
// deny it. What they said is in err, and is no reply of a server.
func isMasterless(err error) bool { return err != nil && strings.HasPrefix(err.Error(), masterless) }

// wordsOf returns what the server said, or a Sentinel.
func wordsOf(err error) (string, bool) {
	if err == nil {
		return "", false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	return reply.Error(), true
}

// isHopeless reports that the same request can only fail again.
func isHopeless(err error) bool {
	return kindOf(err) != backend.ErrUnavailable
}

// isRefused reports that a subscription is not to be had. A command that the server does
// not know is an error with no other word than ERR.
func isRefused(err error) bool {
	said, _ := replyOf(err)
	return isHopeless(err) || strings.HasPrefix(said, "ERR ")
}

// isPassing reports that the request may well succeed in a moment.
func isPassing(err error) bool {
	if _, ok := replyOf(err); !ok {
		return true
	}
	for _, word := range []string{
		"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "NOREPLICAS", "MOVED", "ASK",
	} {
		if says(err, word) {
			return true
		}
	}
	return redis.IsMaxClientsError(err)
}

// says reports whether the server's error begins with a word. What a script meets is quoted
// within another error before Redis 7.
func says(err error, word string) bool {
	said, _ := replyOf(err)
	return redis.HasErrorPrefix(err, word) || strings.Contains(said, ": -"+word+" ")
}

// isUnacknowledged reports that a request has taken effect, but not on as many
// replicas as it should.
func isUnacknowledged(err error) bool {
	if err == nil {
		return false
	}
	var e *unacknowledgedError
	return errors.As(err, &e)
}

// isUntouched reports that the request has certainly had no effect. A server that cannot write
// to its disk refuses the first write of a script, or none. What was written before a master became
// a replica may have gone to the next one.
func isUntouched(err error) bool {
	_, isReply := replyOf(err)
	return isUnsent(err) || isReply && !errors.Is(err, errOldMaster) && (isPassing(err) || says(err, "MISCONF"))
}

// An unsentError says that a command was not sent, and will not be: its caller has gone.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// isUnsent reports that the request has certainly not reached the server.
func isUnsent(err error) bool {
	var op *net.OpError
	var unsent *unsentError
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		isMasterless(err) || errors.As(err, &op) && op.Op == "dial" || errors.As(err, &unsent)
}

// isBroken reports that a connection there was has ended without a reply.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &op) && op.Op != "dial" && !op.Timeout()
}
