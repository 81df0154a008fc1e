package dlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// DefaultTTL is the TTL of a lock for which none is set.
const DefaultTTL = 30 * time.Second

// Options configure a client. A nil *Options is the same as an empty one.
type Options struct {
	// TTL is how long the server keeps a lock once it hears nothing more of
	// its holder. Holds are renewed at a third of it, so it bounds how long a
	// crashed holder blocks others, not how long a lock may be held. From
	// 10 ms, on Postgres 100 ms, to 24 h; zero means DefaultTTL.
	//
	// A client warns of a TTL below 100 ms: such a lock is lost whenever its process
	// or the server does not run for some milliseconds, as happens on any busy machine.
	// A TTL of less than twenty round trips to the server may be too short for a renewal that
	// has to make a connection first, though nothing goes wrong. Where a Redis Cluster moves
	// the lock to another node, that takes up to forty.
	// A client that holds very many locks needs a longer TTL, because it has to renew all
	// of them within it. It also ends its leases earlier, by 2 µs for each lock that would
	// end at the same moment and by a third of the TTL at most: ending them takes time.
	//
	// A clock of this machine that is set forward by more than is left of a lease ends that, as
	// it does when the machine has slept. One that is set back changes nothing, nor does one that is
	// wrong by less than a day and stays so.
	TTL time.Duration

	// Prefix is put before every name, without a separator: end it in one,
	// as in "billing/". Two clients see the same lock if prefix and name
	// together are the same bytes.
	Prefix string

	// Label says for people who holds a lock, such as host and process, in at
	// most 256 bytes without NUL. Client.Inspect shows it.
	Label string

	// Credentials, if not nil, is asked for user and password whenever a
	// connection is made, so that they need not stand in the URL and may
	// change. Calls are ErrAuth from the moment the server has a new password until
	// Credentials returns it. Only Open uses it.
	Credentials func(context.Context) (user, password string, err error)

	// TLS, if not nil, is used for every connection. Only Open uses it.
	TLS *tls.Config

	// Logger, if not nil, is told what a person should know and no caller is
	// told. At Error: a lock that is lost, a lease that was dropped without Unlock (once
	// the lock has been renewed, and the lease's memory collected).
	// At Warn: a lock that WithMaxHold has ended, a release that the server has not
	// confirmed, a renewal that fails or is late (one line in 10 s for all locks).
	// At Debug: what the driver logs, if Open has made the driver's client. (What gRPC
	// calls an error, on etcd, is at Warn: it does not say of which connection it is.)
	// Attributes have the names and values that the metrics of package dlockotel
	// have: dlock.lock.name, dlock.mode, dlock.token, dlock.cause, error.type.
	//
	// A handler that does not return holds up the call in which it is told something, of Open,
	// Lock, Unlock or Lead, and the report of losses to it and to Hooks, but no renewal and no
	// loss. One that panics may end the program.
	Logger *slog.Logger

	// Hooks are called when something happens to a lock.
	Hooks Hooks

	// InspectOnly says that the client takes no lock: Lock is ErrUnsupported. What asks
	// works, and Break does. Postgres then needs no right but that to connect, etcd none
	// but to read keys, and nothing is made there.
	InspectOnly bool
}

// maxLabel is the greatest length of a label in bytes: it goes out with each request.
const maxLabel = 256

func (o *Options) check() error {
	var problems []error
	if o.TTL != 0 {
		problems = append(problems, checkTTL(o.TTL, backend.MinTTL))
	}
	if len(o.Prefix) >= backend.MaxName {
		problems = append(problems, backend.Fail(ErrInvalidName, errors.New("the prefix leaves no room for a name")))
	}
	problems = append(problems, checkLabel(o.Label))
	return backend.Join(problems...)
}

func checkLabel(label string) error {
	if len(label) > maxLabel {
		return backend.Fail(ErrInvalidConfig, fmt.Errorf("a label of %d bytes, more than %d", len(label), maxLabel))
	}
	if strings.Contains(label, "\x00") {
		return backend.Fail(ErrInvalidConfig, errors.New("a NUL in the label"))
	}
	return nil
}

func checkTTL(ttl, least time.Duration) error {
	if ttl < least || ttl > backend.MaxTTL {
		return backend.Fail(ErrInvalidTTL, fmt.Errorf("%v is not within %v and %v", ttl, least, backend.MaxTTL))
	}
	return nil
}

// An Option changes one setting of one lock. It may be used for any number of
// locks. An entry into a lock that its caller holds already shares that hold and its options:
// only WithMaxWait and WithoutReentry count for the entry itself.
type Option func(*settings)

// settings do not change once they are made: locks share them.
type settings struct {
	ttl       time.Duration
	label     string
	maxHold   time.Duration
	minHold   time.Duration
	maxWait   time.Duration
	noReentry bool
	least     time.Duration // the least TTL that the backend can do
	problems  []error
	err       error // all that is wrong with them
}

// newSettings returns the client's settings as o changes them. No TTL may be below least.
func newSettings(client *Options, least time.Duration, o []Option) *settings {
	s := &settings{ttl: client.ttl(), label: client.Label, least: least}
	for _, set := range o {
		if set != nil {
			set(s)
		}
	}
	s.err = s.check()
	return s
}

// WithTTL sets the TTL of the lock, as Options.TTL does for the client.
func WithTTL(ttl time.Duration) Option {
	return func(s *settings) { s.ttl = ttl }
}

// WithLabel sets the label of the lock, as Options.Label does for the client. A
// goroutine of this client that wants another label gets a hold of its own from the
// server.
func WithLabel(label string) Option {
	return func(s *settings) { s.label = label }
}

// WithMaxHold ends every hold d after it was acquired: its lease is lost then
// if it has not been unlocked. A hold with d up to the TTL is never renewed. With d below
// the time of a request each hold is over when it is granted, and Lock asks until its context
// ends. Where the server cannot count in such small units as d, the client ends the hold. The locks of a
// Multi end together, d after all of them were acquired: until then those that it has
// are renewed, and if the process dies they are free after the TTL.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.maxHold = s.positive("max hold", d) }
}

// WithMinHold keeps the lock on the server until d after it was acquired, even
// if it is unlocked sooner; d is at most 24 h. A job that every machine starts at the same time
// by its own clock runs once if d is longer than the clocks differ. Unlock
// ends the lease at once all the same, and the server keeps the lock for the rest of
// d, also if this process has ended: on Redis, etcd, a quorum and in memory. On
// ZooKeeper, Postgres and files a lock ends with its process: there Client.Close waits
// for the rest of d until its context is done. A process that dies before Unlock and
// Close leaves the lock only for as long as any other lock: until its TTL is over. The
// locks of a Multi are kept until d after all of them were acquired.
func WithMinHold(d time.Duration) Option {
	return func(s *settings) { s.minHold = s.positive("min hold", d) }
}

// WithMaxWait bounds the wait of every Lock and RLock, as a context deadline d
// from the call would.
func WithMaxWait(d time.Duration) Option {
	return func(s *settings) { s.maxWait = s.positive("max wait", d) }
}

// WithoutReentry makes a second entry by somebody who holds the lock fail with
// ErrReentry.
func WithoutReentry() Option {
	return func(s *settings) { s.noReentry = true }
}

func (s *settings) positive(what string, d time.Duration) time.Duration {
	if d <= 0 {
		s.problems = append(s.problems, backend.Fail(ErrInvalidTTL, fmt.Errorf("%s of %v is not positive", what, d)))
	}
	return d
}

// check reports every problem of the settings at once.
func (s *settings) check() error {
	problems := append(s.problems, checkTTL(s.ttl, s.least), checkLabel(s.label))
	if s.maxHold > 0 && s.maxHold < backend.MinTTL {
		problems = append(problems, backend.Fail(ErrInvalidTTL, fmt.Errorf("max hold of %v is below %v", s.maxHold, backend.MinTTL)))
	}
	if s.minHold > backend.MaxTTL {
		problems = append(problems, backend.Fail(ErrInvalidTTL, fmt.Errorf("min hold of %v is above %v", s.minHold, backend.MaxTTL)))
	}
	if s.maxHold > 0 && s.minHold > s.maxHold {
		problems = append(problems, backend.Fail(ErrInvalidTTL, fmt.Errorf("min hold of %v is above max hold of %v", s.minHold, s.maxHold)))
	}
	return backend.Join(problems...)
}

// requestTTL is the TTL to ask the server for, and whether it is never renewed. A
// fixed hold asks for a margin more, so that it is believed in for all of maxHold.
func (s *settings) requestTTL(maxHold time.Duration) (ttl time.Duration, fixed bool) {
	if maxHold <= 0 || maxHold > s.ttl {
		return s.ttl, false
	}
	return max(maxHold+2*backend.Margin(maxHold), s.least), true
}
