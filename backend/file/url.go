package file

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("file", open) }

func open(_ context.Context, cfg backend.Config) (backend.Backend, error) {
	u := cfg.URL
	if err := u.Params.Done(); err != nil {
		return nil, err
	}
	if len(u.Hosts) > 0 || u.Path == "/" || u.User != "" || !u.Password.IsZero() {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("want file:///directory or file://"))
	}
	b, err := New(&Options{Dir: u.Path})
	if err != nil {
		return nil, err
	}
	return b, nil
}
