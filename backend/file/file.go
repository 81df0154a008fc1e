//go:build linux

package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A Backend is one client of the locks in a directory. Two of them exclude
// each other in one process as in two.
type Backend struct {
	ctx   context.Context // ends when Close begins
	stop  context.CancelFunc
	shut  sync.Once
	calls sync.WaitGroup // Acquire calls under way
	dir   atomic.Pointer[directory]

	replacing sync.Mutex // of dir

	mu       sync.Mutex
	closed   bool
	holds    map[*grant]struct{}
	notifier *notifier // nil: nobody has waited yet, or there is none
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Renewer    = (*Backend)(nil)
	_ backend.Downgrader = (*Backend)(nil)
	_ backend.Transferer = (*Backend)(nil)
)

// New returns a client of the locks in the directory that o names, which it
// creates if it is missing. The error is ErrInvalidConfig if the directory is
// not safe against other users, and ErrAuth if it cannot be entered.
func New(o *Options) (*Backend, error) {
	path, err := o.absolute()
	if err != nil {
		return nil, err
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	b := &Backend{holds: make(map[*grant]struct{})}
	b.dir.Store(dir)
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	for ctx.Err() == nil {
		dir, err := b.directory()
		if err != nil {
			return nil, err
		}
		g, err := b.acquire(ctx, dir, r)
		dir.leave()
		switch {
		case err == nil:
			return b.hold(r, g), nil
		case b.ctx.Err() != nil:
			return nil, backend.ErrClosed
		case !errors.Is(err, errReplaced) && !errors.Is(err, fs.ErrNotExist): // else somebody tidied up
			return nil, err
		}
	}
	return nil, backend.WaitEnded(ctx, false)
}

// directory returns the one that is at its path now: the one before is worth
// nothing to those who come later. The caller uses it, until it leaves.
func (b *Backend) directory() (*directory, error) {
	for {
		dir := b.dir.Load()
		if !dir.use() {
			continue // it has been replaced since
		}
		err := dir.current()
		if err == nil {
			return dir, nil
		}
		dir.leave()
		if !errors.Is(err, errReplaced) {
			return nil, err
		}
		if err := b.replace(dir); err != nil {
			return nil, err
		}
	}
}

// replace opens what has the path of the directory by now. That is closed with the
// last lock in it.
func (b *Backend) replace(was *directory) error {
	b.replacing.Lock()
	defer b.replacing.Unlock()
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

// acquire asks for the lock once, on the file that is there now.
func (b *Backend) acquire(ctx context.Context, dir *directory, r backend.Request) (*grant, error) {
	name := dir.fileName(r.Name)
	if !r.Wait {
		if busy, err := dir.probe(name, r.Mode); busy || err != nil {
			return nil, refused(err)
		}
	}
	l, err := dir.open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	g, err := l.takeInTurn(r.Mode)
	switch {
	case g != nil:
		return g, nil
	case err != nil || !r.Wait:
		l.close()
		return nil, refused(err)
	}
	r.Queued()
	return b.wait(ctx, newWaiter(l, r))
}

// wait lets w wait until it has the lock, or ctx or the backend ends.
func (b *Backend) wait(ctx context.Context, w *waiter) (*grant, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	g, err := w.wait(waiting, b.useNotifier())
	switch {
	case err == nil || waiting.Err() == nil:
		return g, err
	case b.ctx.Err() != nil:
		return nil, backend.ErrClosed
	}
	return nil, backend.WaitEnded(ctx, true)
}

// hold describes what was granted. It lasts as long as the process.
func (b *Backend) hold(r backend.Request, g *grant) *backend.Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds[g] = struct{}{}
	return &backend.Hold{Request: r, Token: g.token, Sent: g.taken, State: g}
}

// Release implements backend.Backend.
func (b *Backend) Release(_ context.Context, h *backend.Hold) error {
	g := h.State.(*grant)
	err := g.release()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holds, g)
	return err
}

// Renew implements backend.Renewer. It finds out whether somebody has deleted
// or replaced the lock file.
func (b *Backend) Renew(_ context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	for _, h := range holds {
		sent := time.Now()
		err := h.State.(*grant).renew()
		if err == nil {
			h.Sent = sent
		}
		report(h, err)
	}
}

// Downgrade implements backend.Downgrader.
func (b *Backend) Downgrade(_ context.Context, h *backend.Hold) error {
	return h.State.(*grant).downgrade()
}

// Transfer implements backend.Transferer.
func (b *Backend) Transfer(h *backend.Hold) (uint64, bool) { return h.State.(*grant).draw() }

// Close implements backend.Backend. The lock files stay: they keep the tokens.
func (b *Backend) Close(context.Context) error {
	b.shut.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.stop()
		b.calls.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		for g := range b.holds {
			_ = g.release()
		}
		clear(b.holds)
		b.dir.Load().leave()
		if b.notifier != nil {
			leaveNotifier()
		}
	})
	return nil
}

// begin counts a call in, unless the backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.calls.Add(1)
	}
	return !b.closed
}

func (b *Backend) useNotifier() *notifier {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notifier == nil {
		b.notifier = useNotifier()
	}
	return b.notifier
}

// takeInTurn takes the lock if it is free and nobody waits for it.
func (l *lockFile) takeInTurn(mode backend.Mode) (*grant, error) {
	if busy, err := l.busy(mode); busy || err != nil {
		return nil, err
	}
	return l.take(mode)
}

// refused is the error of a request that does not wait.
func refused(err error) error {
	if err == nil {
		return backend.ErrHeld
	}
	return err
}
