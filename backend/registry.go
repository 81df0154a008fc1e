package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Config is what an Opener is given.
type Config struct {
	// URL says where the server is. The opener takes its parameters and must
	// end with Params.Done, so that a misspelt one is not passed over. It sets what it
	// chooses itself, such as a default path.
	URL *URL

	// TTL is the client's default TTL, for backends with one lease or
	// session for all locks.
	TTL time.Duration

	// Label says for people who the client is. It may be empty.
	Label string

	// Credentials, if not nil, is asked for user and password whenever a
	// connection is made. It takes the place of those in the URL.
	Credentials func(context.Context) (user, password string, err error)

	// TLS, if not nil, is used for every connection.
	TLS *tls.Config

	// Member says that the server is one of several that decide by majority, so
	// that it will be asked to vote: see [TokenRegister]. The others may do without
	// it. So a Backend with a method CheckServer(ctx) error looks at the server there,
	// and not when it is opened.
	Member bool

	// InspectOnly says that the backend is asked for no lock, except by an Examiner. It
	// must do without the rights that only locks need, and makes nothing for them.
	InspectOnly bool

	// Logger is never nil.
	Logger *slog.Logger
}

// Login returns Credentials, or those of the URL, or nil if it has no user.
func (c *Config) Login() func(context.Context) (user, password string, err error) {
	if c.Credentials != nil || c.URL.User == "" {
		return c.Credentials
	}
	return func(context.Context) (string, string, error) { return c.URL.User, c.URL.Password.Reveal(), nil }
}

// An Opener connects to the server at cfg.URL. It checks that the server
// answers and accepts the credentials before it returns: a wrong setting shows
// at start-up, not at the first lock.
type Opener func(ctx context.Context, cfg Config) (Backend, error)

var registry = struct {
	sync.RWMutex
	openers map[string]Opener
}{openers: make(map[string]Opener)}

// Register makes a backend available by URL scheme. It is meant for init
// functions and panics if the scheme is taken or open is nil.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if open == nil || !validScheme(scheme) || scheme != strings.ToLower(scheme) {
		panic("dlock: Register needs a lower-case scheme and an opener")
	}
	if _, dup := registry.openers[scheme]; dup {
		panic("dlock: Register called twice for scheme " + scheme)
	}
	registry.openers[scheme] = open
}

// Schemes returns the registered URL schemes in order.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Open opens the backend registered for the scheme of cfg.URL.
func Open(ctx context.Context, cfg Config) (Backend, error) {
	registry.RLock()
	open := registry.openers[cfg.URL.Scheme]
	registry.RUnlock()
	if open == nil {
		return nil, Fail(ErrInvalidConfig, unknownScheme(cfg.URL.Scheme))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return open(ctx, cfg)
}

// unknownScheme says what to import, and which schemes there are already.
func unknownScheme(scheme string) error {
	text := fmt.Sprintf("no backend for scheme %q: import the package of its backend, as github.com/dlock-go/dlock/backend/redis for redis, or backend/all", scheme)
	if have := Schemes(); len(have) > 0 {
		text += "; imported are " + strings.Join(have, ", ")
	}
	return errors.New(text)
}
