package file

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

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
	b, err := New(&Options{Dir: systemPath(u.Path)})
	if err != nil {
		return nil, err
	}
	if u.Path == "" { // so that the client's Info says which directory it is
		u.Path = urlPath(b.dir.Load().path)
	}
	return b, nil
}

// urlPath is what systemPath turns into path.
func urlPath(path string) string {
	return "/" + strings.TrimPrefix(filepath.ToSlash(path), "/")
}

// systemPath returns the path of a URL as the system has it: C:\dir for /C:/dir.
func systemPath(path string) string {
	if own := strings.TrimPrefix(path, "/"); filepath.VolumeName(own) != "" {
		path = own
	}
	return filepath.FromSlash(path)
}
