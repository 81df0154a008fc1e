package dlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// The kinds of failure. Test for them with errors.Is.
var (
	// ErrHeld says that somebody else holds the lock, or that this call was
	// still waiting for it when its context ended. Trying again later may work.
	ErrHeld = backend.ErrHeld

	// ErrLost says that the lock was held and is not any more: its lease ran
	// out, or the server took it away. Somebody else may have held it since.
	// The work done under it was not protected to the end.
	ErrLost = backend.ErrLost

	// ErrBroken is the cause of an ErrLost if the server says that somebody has
	// taken the lock away with Client.Break.
	ErrBroken = backend.ErrBroken

	// ErrNotHeld says that there is no hold such as Client.Break was to end, or no lock
	// such as NamedLocks.Unlock was to give back.
	ErrNotHeld = backend.ErrNotHeld

	// ErrUnlocked says that the lease has already been unlocked.
	ErrUnlocked = errors.New("dlock: lease is unlocked")

	// ErrUpgrade says that an exclusive lock was asked for by somebody who
	// holds the same lock shared. Two who did that would wait for each other. Unlock
	// first, and look again under the exclusive lock at what was read.
	ErrUpgrade = errors.New("dlock: shared lock cannot become exclusive")

	// ErrReentry says that a lock was entered again that forbids it, or
	// downgraded while an exclusive entry made under it is open.
	ErrReentry = errors.New("dlock: lock is not re-entrant here")

	// ErrClosed says that the client has been closed.
	ErrClosed = backend.ErrClosed

	// ErrInvalidName says that a name is empty or longer than 1024 bytes.
	ErrInvalidName = backend.ErrInvalidName

	// ErrInvalidTTL says that a TTL or another duration is out of bounds.
	ErrInvalidTTL = backend.ErrInvalidTTL

	// ErrInvalidConfig says that a URL, an option or a zero value is wrong.
	ErrInvalidConfig = backend.ErrInvalidConfig

	// ErrUnsupported says that this backend, or this kind of lock or client, cannot do
	// that at all.
	ErrUnsupported = backend.ErrUnsupported

	// ErrUnavailable says that the server could not be asked, or did not
	// answer. It says nothing about who holds the lock. Trying again may work.
	ErrUnavailable = backend.ErrUnavailable

	// ErrAuth says that the server refused the credentials, or an operation
	// that they do not permit.
	ErrAuth = backend.ErrAuth

	// ErrConflict says that the place on the server where the lock would be
	// is taken by something that is not a lock of this library. It was not
	// touched.
	ErrConflict = backend.ErrConflict
)

// kinds lists what Error.Kind can be, the more telling ones first, and what ErrorType
// returns for each.
var kinds = []struct {
	error
	name string
}{
	{ErrClosed, "closed"},
	{ErrLost, "lost"},
	{ErrUnlocked, "unlocked"},
	{ErrUpgrade, "upgrade"},
	{ErrReentry, "reentry"},
	{ErrInvalidName, "invalid_name"},
	{ErrInvalidTTL, "invalid_ttl"},
	{ErrInvalidConfig, "invalid_config"},
	{ErrUnsupported, "unsupported"},
	{ErrAuth, "auth"},
	{ErrConflict, "conflict"},
	{ErrHeld, "held"},
	{ErrNotHeld, "not_held"},
	{ErrUnavailable, "unavailable"},
}

// An Error is what every failed operation returns, and the cause of every
// context that a lease has ended. errors.Is and errors.As find its kind, what the
// backend's driver said, and the cause that a program has given the context of a call that
// has ended with that.
type Error struct {
	Op   string // lock, trylock, rlock, tryrlock, unlock, downgrade, open, close, inspect, names, break, ping or examine; hold: the end of a lease
	Name string // the lock's name; of a multi-lock the one that failed, or all joined by a space
	Kind error  // one of the Err variables; nil if ctx was done before anything was asked
	Err  error  // the cause: the driver's error, the cause of a context, or nil
}

// Error describes the failure on one line. It holds no credentials.
func (e *Error) Error() string {
	text, cause := "dlock: "+e.Op, ""
	if e.Name != "" {
		text += " " + quote(e.Name)
	}
	if e.Err != nil {
		cause = ": " + backend.OneLine(e.Err)
	}
	if e.Kind != nil && !strings.Contains(cause, backend.OneLine(e.Kind)) {
		text += ": " + backend.OneLine(e.Kind)
	}
	return text + cause
}

// quote quotes the name of a lock, of one that is longer than any may be the beginning.
func quote(name string) string {
	if len(name) > backend.MaxName {
		return strconv.Quote(name[:64]) + "..."
	}
	return strconv.Quote(name)
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// Is reports whether target is, or is among, the cause that its owner has given a context.
func (e *Error) Is(target error) bool { return errors.Is(backend.OwnersCause(e.Err), target) }

// As does for errors.As what Is does for errors.Is.
func (e *Error) As(target any) bool { return errors.As(backend.OwnersCause(e.Err), target) }

// kindOf returns the kind that err is of, or def if it is of none. What err
// says first counts before what its causes say.
func kindOf(err, def error) error {
	if e, ok := err.(*Error); ok {
		return e.Kind
	}
	if pair, ok := err.(interface{ Unwrap() []error }); ok {
		if parts := pair.Unwrap(); len(parts) > 0 && isKind(parts[0]) {
			return parts[0]
		}
	}
	for _, k := range kinds {
		if says(err, k.error) {
			return k.error
		}
	}
	return def
}

// says reports whether err is of a kind, or a loss for a reason. What a program has given a context as
// its cause does not count, although errors.Is finds it in an *Error.
func says(err, what error) bool {
	if e, ok := err.(*Error); ok { // of one kind, whatever its cause is
		return e.Kind == what || !isKind(what) && says(e.Err, what)
	}
	if is, ok := err.(interface{ Is(error) bool }); err == what || ok && is.Is(what) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return says(e.Unwrap(), what)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(part error) bool { return says(part, what) })
	}
	return false
}

func isKind(err error) bool {
	for _, k := range kinds {
		if k.error == err {
			return true
		}
	}
	return false
}

// isLoss reports whether a backend says with err that the lock it was asked about is lost. A backend
// may return what has ended a context as it is: the end of another lease is an *Error.
func isLoss(err error) bool {
	var cause *Error
	return errors.Is(err, ErrLost) && !errors.As(err, &cause)
}

// newError makes err an *Error about name. The end of a lease on that name becomes the
// failure of op. An error of no known kind came from a driver: the backend is
// unavailable.
func newError(op, name string, err error) *Error {
	if e, ok := err.(*Error); ok && e.Op == "hold" && e.Name == name {
		return &Error{Op: op, Name: name, Kind: e.Kind, Err: e.Err}
	}
	kind := kindOf(err, ErrUnavailable)
	return &Error{Op: op, Name: name, Kind: kind, Err: without(kind, err)}
}

// without is what err says beyond kind: nil for kind itself, the second part
// of a backend.Fail of that kind.
func without(kind, err error) error {
	if err == kind {
		return nil
	}
	if pair, ok := err.(interface{ Unwrap() []error }); ok {
		if parts := pair.Unwrap(); len(parts) == 2 && parts[0] == kind {
			return parts[1]
		}
	}
	return err
}

// ctxError is the error of an operation whose ctx was done before anything
// was asked of the backend. Its kind is that of the lease whose end ended ctx.
func ctxError(op, name string, ctx context.Context) *Error {
	err := &Error{Op: op, Name: name, Err: backend.Cause(ctx)}
	var end *Error
	if errors.As(context.Cause(ctx), &end) && end.Op == "hold" {
		err.Kind, err.Err = end.Kind, leaseEnd{err.Err, end}
	}
	return err
}

// A leaseEnd is the Cause of a context that has ended with a lease. It has the reasons of that end.
type leaseEnd struct {
	error
	end *Error
}

func (e leaseEnd) Unwrap() error { return e.error }

// Is reports whether what is such a reason.
func (e leaseEnd) Is(what error) bool { return !isKind(what) && says(e.end, what) }

// ErrorType names the kind of err in one word, for logs and metrics: unavailable for
// ErrUnavailable, invalid_name for ErrInvalidName, broken for an ErrLost whose cause is
// ErrBroken. For an error of no kind it is _OTHER, as OpenTelemetry has it for error.type,
// and for nil it is empty.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	kind := kindOf(err, nil)
	if kind == ErrLost && says(err, ErrBroken) {
		return "broken"
	}
	for _, k := range kinds {
		if k.error == kind {
			return k.name
		}
	}
	return "_OTHER"
}

// What a kind alone does not say.
var (
	errInspectOnly     = backend.Fail(ErrUnsupported, errors.New("the client is opened with InspectOnly"))
	errNilContext      = backend.Fail(ErrInvalidConfig, errors.New("nil context"))
	errNoBackend       = errors.New("nil backend")
	errZeroClient      = errors.New("nil or zero Client: use Open or New")
	errNilLocker       = backend.Fail(ErrInvalidConfig, errors.New("nil Locker"))
	errNilFunc         = backend.Fail(ErrInvalidConfig, errors.New("nil function"))
	errZeroMutex       = errors.New("nil or zero lock: make it with a method of Client")
	errZeroLease       = &Error{Op: "hold", Kind: ErrUnlocked, Err: errors.New("nil or zero Lease")}
	errTooLate         = errors.New("the lock was granted, but the answer took as long as the lease")
	errNestedDowngrade = errors.New("only the lease that took the lock can be downgraded")
	errStuck           = errors.New("a hook, the logger or the backend has not returned")
	errHookPanicked    = errors.New("a hook panicked")
	errMultiDowngrade  = backend.Fail(ErrUnsupported, errors.New("a lock of several names cannot be downgraded"))
	errGone            = errors.New("the server does not know it any more")
	errOpenEntry       = errors.New("an exclusive entry made under the lease is open")
)
