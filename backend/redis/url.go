package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock/backend"
)

// opening bounds Open on a server that does not answer.
const opening = 10 * time.Second

// schemes are those of URLs and what the client library calls them.
var schemes = map[string]string{
	"redis":   "redis",
	"rediss":  "rediss",
	"unix":    "unix",
	"valkey":  "redis",
	"valkeys": "rediss",
}

func init() {
	for scheme := range schemes {
		backend.Register(scheme, open)
	}
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	o, err := takeOptions(cfg)
	if err != nil {
		return nil, err
	}
	c, err := clientOptions(cfg)
	if err != nil {
		return nil, err
	}
	b := New(redis.NewClient(c), o)
	b.owned = true
	ctx, cancel := backend.Bound(ctx, opening)
	defer cancel()
	if err := b.inspect(ctx, o.Logger); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// takeOptions takes the parameters that are ours.
func takeOptions(cfg backend.Config) (*Options, error) {
	p := &cfg.URL.Params
	wake := p.Take("dlock.wake", "message")
	o := &Options{
		PollOnly: wake == "poll",
		Poll:     p.TakeDuration("dlock.poll", DefaultPoll),
		Logger:   cfg.Logger,
	}
	if wake != "message" && wake != "poll" {
		return nil, invalid("parameter dlock.wake: want message or poll")
	}
	if o.Poll <= 0 {
		return nil, invalid("parameter dlock.poll: want more than 0")
	}
	return o, nil
}

// clientOptions has the client library read the rest of the URL, without user
// and password: its errors repeat what they are about.
func clientOptions(cfg backend.Config) (*redis.Options, error) {
	u := cfg.URL
	if len(u.Hosts) > 1 {
		return nil, invalid("want one host")
	}
	clean := url.URL{
		Scheme:   schemes[u.Scheme],
		Host:     strings.Join(u.Hosts, ""),
		Path:     u.Path,
		RawQuery: u.Params.Rest().Encode(),
	}
	if err := u.Params.Done(); err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(clean.String())
	if err != nil {
		return nil, parameterError(err)
	}
	o.Username, o.Password = u.User, u.Password
	o.CredentialsProviderContext = cfg.Credentials
	o.TLSConfig = tlsConfig(o.TLSConfig, cfg.TLS)
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 2 * time.Second
	}
	return o, nil
}

// tlsConfig is the given one, for the host of the URL where it names none.
func tlsConfig(parsed, given *tls.Config) *tls.Config {
	if given == nil {
		return parsed
	}
	c := given.Clone()
	if c.ServerName == "" && parsed != nil {
		c.ServerName = parsed.ServerName
	}
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	return c
}

// parameterError says what the client library did not like. Only the names of
// unknown parameters are repeated.
func parameterError(err error) error {
	if names, ok := strings.CutPrefix(err.Error(), "redis: unexpected option: "); ok {
		return invalid("unknown parameter " + names)
	}
	return invalid("URL: the number of the database, the path or the value of a parameter is wrong")
}

func invalid(problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, errors.New(problem))
}
