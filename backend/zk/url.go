package zk

import (
	"context"
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
		Credentials:    cfg.Login(),
		Logger:         cfg.Logger,
	}
	var err error
	look := u.Params.Clone()
	files := look.Take("ca", "") + look.Take("cert", "") + look.Take("key", "")
	encrypted := u.Params.TakeBool("tls", cfg.TLS != nil || files != "")
	if o.TLS, err = cfg.TakeTLS(encrypted); err != nil {
		return nil, err
	}
	acl := u.Params.Take("acl", "")
	switch {
	case cfg.TLS != nil && !encrypted:
		return nil, badURL("parameter tls: false beside TLS in Options")
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
