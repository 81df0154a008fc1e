package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("memory", open) }

// named holds the servers that URLs have names for, while a client is open.
var named = struct {
	sync.Mutex
	servers map[string]*shared
}{servers: make(map[string]*shared)}

type shared struct {
	server  *Server
	clients int
}

func open(_ context.Context, cfg backend.Config) (backend.Backend, error) {
	u := cfg.URL
	if err := u.Params.Done(); err != nil {
		return nil, err
	}
	if len(u.Hosts) > 1 || u.Path != "" && u.Path != "/" || u.User != "" || !u.Password.IsZero() {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("want memory:// or memory://name"))
	}
	if len(u.Hosts) == 0 {
		return New(nil), nil
	}
	return openNamed(u.Hosts[0]), nil
}

func openNamed(name string) *Backend {
	named.Lock()
	defer named.Unlock()
	sh := named.servers[name]
	if sh == nil {
		sh = &shared{server: NewServer()}
		named.servers[name] = sh
	}
	sh.clients++
	b := New(sh.server)
	b.onStop = func() {
		named.Lock()
		defer named.Unlock()
		if sh.clients--; sh.clients == 0 {
			delete(named.servers, name)
		}
	}
	return b
}
