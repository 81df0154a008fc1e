package file

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/dlock-go/dlock/backend"
)

// errReplaced says that the path names another file by now: whatever was
// locked on this one is worth nothing.
var errReplaced = errors.New("lock file was replaced")

// errJoining says that another reader has been joining for long, such as one that is stopped.
var errJoining = backend.Fail(backend.ErrUnavailable, errors.New("another reader is about to join, and does not go on"))

// replacedIfMissing is err of a look at a path. What is not there any more has been
// replaced.
func replacedIfMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	return systemError(err)
}

func unsafeDirectory(path, problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("%s %s", path, problem))
}

func notALockFile(path, problem string) error {
	return backend.Fail(backend.ErrConflict, fmt.Errorf("%s: %s", path, problem))
}

// systemError tells what kind of failure an error of the system is.
func systemError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return backend.Fail(backend.ErrAuth, err)
	case slices.ContainsFunc(notRegular, func(e error) bool { return errors.Is(err, e) }):
		return backend.Fail(backend.ErrConflict, err)
	}
	return backend.Fail(backend.ErrUnavailable, err)
}
