package zk

import (
	"context"
	"crypto/tls"
	"errors"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("zk", open) }

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	opts, err := optionsOf(cfg)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, cfg.URL.HostPorts("2181"), opts)
}

// optionsOf reads the URL and what stands beside it.
func optionsOf(cfg backend.Config) (*Options, error) {
	u := cfg.URL
	o := &Options{
		Root:           u.Path,
		SessionTimeout: u.Params.TakeDuration("session", cfg.TTL),
		Standalone:     !u.Params.TakeBool("ensemble", true),
		Strict:         u.Params.TakeBool("strict", false),
		Credentials:    cfg.Credentials,
		Logger:         cfg.Logger,
	}
	var err error
	if o.TLS, err = tlsConfig(cfg); err != nil {
		return nil, err
	}
	if o.Credentials == nil && u.User != "" {
		o.Credentials = func(context.Context) (string, string, error) { return u.User, u.Password.Reveal(), nil }
	}
	acl := u.Params.Take("acl", "")
	switch {
	case acl == "open":
		o.ACL = gozk.WorldACL(gozk.PermAll)
	case acl != "" && (acl != "creator" || o.Credentials == nil):
		return nil, badURL("parameter acl: want open, or creator with a user")
	}
	if len(u.Hosts) == 0 {
		return nil, badURL("no host")
	}
	return o, u.Params.Done()
}

// tlsConfig returns nil for connections that are not encrypted.
func tlsConfig(cfg backend.Config) (*tls.Config, error) {
	p := &cfg.URL.Params
	ca, cert, key := p.Take("ca", ""), p.Take("cert", ""), p.Take("key", "")
	files := ca != "" || cert != "" || key != ""
	encrypt := p.TakeBool("tls", files || cfg.TLS != nil)
	switch {
	case cfg.TLS != nil && files:
		return nil, badURL("TLS is given in the URL and in Options")
	case !encrypt && (files || cfg.TLS != nil):
		return nil, badURL("parameter tls: false beside what it would take")
	case cfg.TLS != nil:
		return cfg.TLS.Clone(), nil
	case encrypt:
		return backend.ReadTLS(ca, cert, key)
	}
	return nil, nil
}

func badURL(problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, errors.New("URL: "+problem))
}
