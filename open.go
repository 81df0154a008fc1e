package dlock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dlock-go/dlock/backend"
)

// Open returns a client of the backend that url names, such as
//
//	file:///var/lock/app
//	redis://localhost:6379/0
//	etcd://host1:2379,host2:2379/prefix
//
// The backend's package must be imported, for its side effect if for nothing
// else; package backend/all has them all. The parameters dlock.ttl,
// dlock.prefix and dlock.label stand for the fields of Options; giving one
// there too is an error, as is a parameter that the backend does not know.
//
// Open talks to the server: a wrong address is ErrUnavailable, wrong
// credentials are ErrAuth, a wrong setting is ErrInvalidConfig. No error
// repeats the URL.
func Open(ctx context.Context, url string, o *Options) (*Client, error) {
	if ctx == nil {
		return nil, newError("open", "", errNilContext)
	}
	if ctx.Err() != nil {
		return nil, ctxError("open", "", ctx)
	}
	c, err := open(ctx, url, o)
	if err != nil {
		return nil, newError("open", "", err)
	}
	return c, nil
}

func open(ctx context.Context, url string, o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opts, err := takeOptions(u, o)
	if err != nil {
		return nil, err
	}
	be, err := backend.Open(ctx, backend.Config{
		URL:         u,
		TTL:         opts.ttl(),
		InspectOnly: opts.InspectOnly,
		Label:       opts.Label,
		Credentials: opts.Credentials,
		TLS:         opts.TLS,
		Logger:      opts.logger(),
	})
	if err != nil {
		return nil, err
	}
	c, err := newClient(be, opts)
	if err != nil {
		_ = be.Close(ctx)
		return nil, err
	}
	c.info = Info{Backend: u.Scheme, Address: u.String()}
	if len(u.Hosts) > 0 || u.Path != "" { // otherwise it may be a place of its own, as in memory
		c.place = c.info.Address
	}
	return c, nil
}

// takeOptions returns o with what the URL says of it, and checks the result.
func takeOptions(u *backend.URL, o *Options) (*Options, error) {
	opts := *o
	var problems []error
	for name, given := range map[string]bool{
		"dlock.ttl":    o.TTL != 0,
		"dlock.prefix": o.Prefix != "",
		"dlock.label":  o.Label != "",
	} {
		if given && u.Params.Has(name) {
			problems = append(problems, backend.Fail(ErrInvalidConfig, errors.New(name+" is given in the URL and in Options")))
		}
	}
	if (u.User != "" || !u.Password.IsZero()) && o.Credentials != nil {
		problems = append(problems, backend.Fail(ErrInvalidConfig, errors.New("credentials are given in the URL and in Options")))
	}
	opts.TTL = u.Params.TakeDuration("dlock.ttl", o.TTL)
	opts.Prefix = u.Params.Take("dlock.prefix", o.Prefix)
	opts.Label = u.Params.Take("dlock.label", o.Label)
	problems = append(problems, opts.check())
	return &opts, backend.Join(problems...)
}

func (o *Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}
