//go:build !linux

package file

import (
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// A Backend is one client of the locks in a directory.
type Backend struct{ backend.Backend }

// New fails: this system has no way to wait for a file.
func New(*Options) (*Backend, error) {
	return nil, backend.Fail(backend.ErrUnsupported, errors.New("locks in files need Linux"))
}
