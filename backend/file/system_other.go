//go:build !linux

package file

import (
	"errors"
	"io/fs"
	"os"

	"github.com/dlock-go/dlock/backend"
)

// errUnsupported is why there are no locks in files on this system: New reports it
// before anything else here is called.
var errUnsupported = backend.Fail(backend.ErrUnsupported, errors.New("locks in files need Linux"))

func lockWhole(*os.File, backend.Mode) (bool, error)       { return false, errUnsupported }
func unlockWhole(*os.File)                                 {}
func lockByte(*os.File, backend.Mode, int64) (bool, error) { return false, errUnsupported }
func unlockByte(*os.File, int64)                           {}
func isOwn(fs.FileInfo) bool                               { return false }
func remoteFileSystem(*os.File) (string, error)            { return "", errUnsupported }

func findLock(*os.File, backend.Mode, int64, int64) (at, length int64, err error) {
	return 0, 0, errUnsupported
}

// A notifier tells nothing here: who waits looks again and again.
type notifier struct{}

func useNotifier() *notifier { return nil }
func leaveNotifier()         {}

func (n *notifier) watch(*os.File, chan struct{}) (stop func(), ok bool) { return func() {}, false }

// A wholeLock is a lock of a whole file, of whatever program.
type wholeLock struct {
	pid  int
	mode backend.Mode
}

func locksOf(fs.FileInfo) []wholeLock { return nil }
