package file

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// Options are the settings of New. A nil *Options is the zero value.
type Options struct {
	// Dir is the directory. Empty means the user's own default.
	Dir string
}

// A Backend is one client of the locks in a directory. Two of them exclude
// each other in one process as in two.
type Backend struct {
	calls     backend.Calls
	dir       atomic.Pointer[directory]
	reopening sync.Mutex // of dir

	mu       sync.Mutex
	holds    map[*hold]struct{}
	notifier *notifier // nil: nobody has waited yet, or there is none
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Renewer    = (*Backend)(nil)
	_ backend.Downgrader = (*Backend)(nil)
	_ backend.Transferer = (*Backend)(nil)
	_ backend.Examiner   = (*Backend)(nil)
	_ backend.Inspector  = (*Backend)(nil)
	_ backend.Breaker    = (*Backend)(nil)
	_ backend.Pinger     = (*Backend)(nil)
)

// New returns a client of the locks in the directory that o names, which it
// creates if it is missing. The error is ErrInvalidConfig if the directory is
// not safe against other users, ErrAuth if it cannot be entered, and ErrUnsupported on
// systems other than Linux, macOS, FreeBSD and Windows.
func New(o *Options) (*Backend, error) {
	if errUnsupported != nil {
		return nil, errUnsupported
	}
	path, err := o.absolute()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	b := &Backend{holds: make(map[*hold]struct{})}
	b.dir.Store(dir)
	return b, nil
}

// Close implements backend.Backend. The lock files stay: they keep the tokens.
func (b *Backend) Close(context.Context) error {
	if !b.calls.Close() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.holds {
		_ = h.release()
	}
	clear(b.holds)
	b.dir.Load().leave()
	if b.notifier != nil {
		leaveNotifier()
	}
	return nil
}

func (b *Backend) useNotifier() *notifier {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notifier == nil {
		b.notifier = useNotifier()
	}
	return b.notifier
}

// currentDirectory returns the directory that is at the path now. The one before is
// worth nothing to those who come later. The caller uses it, until it leaves.
func (b *Backend) currentDirectory() (*directory, error) {
	for {
		dir := b.dir.Load()
		if !dir.use() {
			continue // it has been replaced since
		}
		err := dir.checkCurrent()
		if err == nil {
			return dir, nil
		}
		dir.leave()
		if !errors.Is(err, errReplaced) {
			return nil, err
		}
		if err := b.reopen(dir); err != nil {
			return nil, err
		}
	}
}

// withDirectory calls do with the directory that is at the path now.
func (b *Backend) withDirectory(ctx context.Context, do func(*directory) error) error {
	_, end, err := b.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	dir, err := b.currentDirectory()
	if err != nil {
		return err
	}
	defer dir.leave()
	return do(dir)
}

// reopen opens what has the path of the directory by now. That is closed with the
// last lock in it.
func (b *Backend) reopen(was *directory) error {
	b.reopening.Lock()
	defer b.reopening.Unlock()
	if b.dir.Load() != was {
		return nil
	}
	dir, err := openDirectory(was.path)
	if err != nil {
		return err
	}
	b.dir.Store(dir)
	was.leave()
	return nil
}
