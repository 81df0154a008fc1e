package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The kinds of failure. Package dlock exports the same values.
var (
	ErrHeld          = errors.New("dlock: lock is held")
	ErrLost          = errors.New("dlock: lock was lost")
	ErrClosed        = errors.New("dlock: client is closed")
	ErrInvalidName   = errors.New("dlock: invalid name")
	ErrInvalidTTL    = errors.New("dlock: invalid TTL")
	ErrInvalidConfig = errors.New("dlock: invalid configuration")
	ErrUnsupported   = errors.New("dlock: not supported")
	ErrUnavailable   = errors.New("dlock: backend is unavailable")
	ErrAuth          = errors.New("dlock: access denied")
	ErrConflict      = errors.New("dlock: the key is used by something else")
)

var kinds = []error{
	ErrHeld, ErrNotHeld, ErrLost, ErrClosed, ErrInvalidName, ErrInvalidTTL, ErrInvalidConfig,
	ErrUnsupported, ErrUnavailable, ErrAuth, ErrConflict,
}

// HasKind reports whether err is one of the kinds of failure.
func HasKind(err error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// Fail returns an error that is both kind and err: errors.Is and errors.As
// find either. A nil err leaves kind alone.
func Fail(kind, err error) error {
	if err == nil {
		return kind
	}
	return &failure{kind, err}
}

type failure struct{ kind, err error }

func (f *failure) Error() string   { return f.kind.Error() + ": " + OneLine(f.err) }
func (f *failure) Unwrap() []error { return []error{f.kind, f.err} }

// At adds to an ErrUnavailable which servers, each as host:port, were asked. Other errors
// stay as they are.
func At(servers []string, err error) error {
	return unavailableAs(err, func(why error) error { return fmt.Errorf("%s: %w", strings.Join(servers, ","), why) })
}

// Because adds a reason to an ErrUnavailable. Other errors stay as they are.
func Because(err, reason error) error {
	return unavailableAs(err, func(why error) error { return fmt.Errorf("%w: %w", why, reason) })
}

func unavailableAs(err error, as func(why error) error) error {
	if f, ok := err.(*failure); ok && f.kind == ErrUnavailable {
		return &failure{f.kind, as(f.err)}
	}
	return err
}

// Join is errors.Join, but its text is one line, with the first errors only if there are
// very many, and one error alone stays as it is. Join many errors in one call: joined one
// by one, their text takes time in the square of their number.
func Join(errs ...error) error {
	var some several
	for _, err := range errs {
		if err != nil {
			some = append(some, err)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case 1:
		return some[0]
	}
	return some
}

type several []error

func (s several) Unwrap() []error { return s }

// manyTexts is how many different errors a text tells of.
const manyTexts = 20

func (s several) Error() string {
	var texts []string
	seen := make(map[string]bool)
	for _, err := range s {
		if text := OneLine(err); !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	if n := len(texts) - manyTexts; n > 0 {
		texts = append(texts[:manyTexts], fmt.Sprintf("and %d more", n))
	}
	return "dlock: " + strings.Join(texts, "; ")
}

// OneLine is the text of err as a part of another: on one line, without the name of
// this library before it. A line that ends in a colon introduces the next.
func OneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	text := strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
	return strings.TrimPrefix(text, "dlock: ")
}

// Cause is the cause of a context, nil if that is not done. What its owner has given as the cause is an error
// from anywhere: it may be of a kind of failure, or a driver's, of some other request. So errors.Is
// and errors.As find context.Canceled or context.DeadlineExceeded alone, and OwnersCause the rest.
func Cause(ctx context.Context) error {
	how := ctx.Err()
	if how == nil {
		return nil
	}
	cause := context.Cause(ctx)
	switch cause.(type) {
	case NoAnswer, closing:
		return cause
	}
	if cause == how {
		return cause
	}
	return &ended{cause, how}
}

// OwnersCause returns the cause that its owner has given a context whose Cause err is, or has
// among its causes; nil if there is none.
func OwnersCause(err error) error {
	var e *ended
	if errors.As(err, &e) {
		return e.cause
	}
	return nil
}

type ended struct{ cause, how error }

func (e *ended) Error() string { return e.cause.Error() }
func (e *ended) Unwrap() error { return e.how }

// A closing is the cause of a context that [Calls.Close] has ended. A program may end one with
// ErrClosed.
type closing struct{}

func (closing) Error() string { return ErrClosed.Error() }
func (closing) Unwrap() error { return ErrClosed }

// A NoAnswer is the cause of a context in which a server was asked that has not
// answered for so long.
type NoAnswer time.Duration

func (n NoAnswer) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(n)) }

// WaitEnded is the error of an Acquire whose ctx is done: ErrHeld if the
// server has said that the lock is held or the request queued, otherwise
// ErrUnavailable, either with the Cause of ctx. A ctx that was ended by [NoAnswer] is
// always ErrUnavailable: the answer has come too late to keep the request waiting. One that
// was ended by [Calls.Close] is ErrClosed.
func WaitEnded(ctx context.Context, answered bool) error {
	cause := Cause(ctx)
	if cause == (closing{}) {
		return ErrClosed
	}
	var late NoAnswer
	if answered && !errors.As(cause, &late) {
		return Fail(ErrHeld, cause)
	}
	return Fail(ErrUnavailable, cause)
}
