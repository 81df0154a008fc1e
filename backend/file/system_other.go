//go:build !linux && !darwin && !freebsd && !windows

package file

import (
	"errors"
	"io/fs"
	"os"

	"github.com/dlock-go/dlock/backend"
)

// errUnsupported is why there are no locks in files on this system: New reports it
// before anything else here is called.
var errUnsupported = backend.Fail(backend.ErrUnsupported, errors.New("locks in files need Linux, macOS, FreeBSD or Windows"))

var notRegular []error

var home = func() string { return "" }

func lockWhole(*os.File, backend.Mode) (bool, error) { return false, errUnsupported }
func unlockWhole(*os.File)                           {}
func isOwn(fs.FileInfo) bool                         { return false }
func isWritableByOthers(fs.FileInfo) bool            { return true }
func remoteFileSystem(*os.File) (string, error)      { return "", errUnsupported }
func fileID(*os.File, fs.FileInfo) (uint64, error)   { return 0, errUnsupported }

// remove deletes a file or an empty directory.
func (d *directory) remove(name string) error { return d.root.Remove(name) }
