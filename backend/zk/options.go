package zk

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// Options configure a Backend. A nil *Options is the same as an empty one.
type Options struct {
	// Root is the path below which locks are kept. It is created when the
	// first lock is taken, or by Connect if the ACL is closed to the world, and
	// stays. Empty means /dlock.
	Root string

	// SessionTimeout is the session timeout to ask the server for, which
	// grants one within bounds of its own. Zero means 30 s.
	SessionTimeout time.Duration

	// Strict gives up every hold as soon as the connection breaks, without
	// waiting for whether it comes back within the session.
	Strict bool

	// Standalone says that there is one server and no ensemble. It is ignored
	// with several addresses. Without it a member may be behind, so that a request
	// that does not wait asks twice before it is told that the lock is held, and
	// may have died without telling the others which clients it has heard of, so
	// that a lease counts for less.
	Standalone bool

	// Credentials, if not nil, is asked for the user and password of the
	// digest scheme whenever a session begins.
	Credentials func(context.Context) (user, password string, err error)

	// ACL is for every node that is created. Nil means all rights, for the
	// user if there are Credentials, else for everybody: then everybody who
	// reaches the server may take the locks away. With an ACL that is closed to
	// the world, so must be the root and what is below it, whoever made it.
	ACL []gozk.ACL

	// TLS, if not nil, is used for every connection.
	TLS *tls.Config

	// Logger is told of connections that fail. Nil means nobody.
	Logger *slog.Logger
}

const (
	defaultRoot    = "/dlock"
	defaultTimeout = 30 * time.Second
)

// complete returns o with its defaults filled in.
func (o *Options) complete() (Options, error) {
	c := *o
	c.Root = cmp.Or(strings.TrimRight(o.Root, "/"), defaultRoot)
	c.SessionTimeout = cmp.Or(o.SessionTimeout, defaultTimeout)
	if c.SessionTimeout < backend.MinTTL || c.SessionTimeout > backend.MaxTTL {
		return c, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("session timeout of %v", c.SessionTimeout))
	}
	if c.ACL == nil && c.Credentials != nil {
		c.ACL = gozk.AuthACL(gozk.PermAll)
	}
	if c.ACL == nil {
		c.ACL = gozk.WorldACL(gozk.PermAll)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
