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
		Ensemble:       u.Params.TakeBool("ensemble", false),
		Strict:         u.Params.TakeBool("strict", false),
		Credentials:    cfg.Credentials,
		TLS:            cfg.TLS,
		Logger:         cfg.Logger,
	}
	if u.Params.TakeBool("tls", false) && o.TLS == nil {
		o.TLS = &tls.Config{}
	}
	if o.Credentials == nil && u.User != "" {
		o.Credentials = func(context.Context) (string, string, error) { return u.User, u.Password, nil }
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

func badURL(problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, errors.New("URL: "+problem))
}
