package dlock

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Config is what a program needs to be told to have a client. It has the field tags
// of encoding/json, yaml.v3, caarlos0/env (give that one envPrefix:"DLOCK_") and
// mapstructure. For viper and others on mapstructure give the option
// DecodeHook(mapstructure.TextUnmarshallerHookFunc()).
//
// Make it a named field of the program's settings: a struct that embeds a Config is
// printed as the Config alone.
type Config struct {
	// URL names the backend and says where it is, as Open takes it. It may
	// hold a password: a Config is never printed or encoded with it.
	URL Secret `json:"url" yaml:"url" mapstructure:"url" env:"URL"`

	// TTL, Prefix and Label are those of Options.
	TTL    Duration `json:"ttl,omitempty" yaml:"ttl,omitempty" mapstructure:"ttl" env:"TTL"`
	Prefix string   `json:"prefix,omitempty" yaml:"prefix,omitempty" mapstructure:"prefix" env:"PREFIX"`
	Label  string   `json:"label,omitempty" yaml:"label,omitempty" mapstructure:"label" env:"LABEL"`
}

// A Secret is text that nothing prints, such as a URL with a password. NewSecret makes
// one, text decodes into it, and Reveal returns the text; its methods are documented in
// package backend.
type Secret = backend.Secret

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return backend.NewSecret(text) }

// Validate reports every problem of c at once, each an ErrInvalidConfig,
// ErrInvalidTTL or ErrInvalidName. It asks no server and no backend: a scheme that is
// not imported, or a parameter that the backend does not know, is an error of Open.
func (c Config) Validate() error {
	u, err := backend.ParseURL(c.URL.Reveal())
	if err != nil {
		return backend.Join(err, c.options().check())
	}
	_, err = takeOptions(u, c.options())
	return backend.Join(err, u.Params.Err())
}

// Open opens the client that c describes. The URL, TTL, Prefix and Label come
// from c; o may add the rest.
func (c Config) Open(ctx context.Context, o *Options) (*Client, error) {
	opts := c.options()
	if o != nil {
		if o.TTL != 0 || o.Prefix != "" || o.Label != "" {
			return nil, newError("open", "", backend.Fail(ErrInvalidConfig,
				errors.New("TTL, Prefix and Label are given in the Config and in Options")))
		}
		opts.Credentials, opts.TLS, opts.Logger, opts.Hooks = o.Credentials, o.TLS, o.Logger, o.Hooks
		opts.InspectOnly = o.InspectOnly
	}
	return Open(ctx, c.URL.Reveal(), opts)
}

func (c Config) options() *Options {
	return &Options{TTL: time.Duration(c.TTL), Prefix: c.Prefix, Label: c.Label}
}

// String describes c without user, password and parameters.
func (c Config) String() string {
	where := "(malformed URL)"
	if u, err := backend.ParseURL(c.URL.Reveal()); err == nil {
		where = u.String()
	} else if c.URL.Reveal() == "" {
		where = "(no URL)"
	}
	return fmt.Sprintf("%s ttl=%s prefix=%q label=%q", where, time.Duration(c.TTL), c.Prefix, c.Label)
}

// A Duration is a time.Duration that decodes from text such as 10s. A bare number is an
// error.
type Duration time.Duration

var _ encoding.TextUnmarshaler = (*Duration)(nil)

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return backend.Fail(ErrInvalidConfig, fmt.Errorf("duration %q: want one with a unit, such as 10s", text))
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is that of time.Duration.
func (d Duration) String() string { return time.Duration(d).String() }
