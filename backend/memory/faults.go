package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// errNoReply is the cause of a failure that DropReply asked for.
var errNoReply = errors.New("the reply was lost")

// Cut cuts this client off: none of its calls gets an answer until Heal. What
// it holds runs out on the server meanwhile.
func (b *Backend) Cut() { b.link.cut() }

// Heal ends Cut.
func (b *Backend) Heal() { b.link.heal() }

// FailNext makes the next call fail with err before it reaches the server.
func (b *Backend) FailNext(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failNext = err
}

// DropReply makes the next call take effect and fail all the same, as if its
// reply had been lost. Acquire clears up after itself then.
func (b *Backend) DropReply() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropReply = true
}

// up reports whether a call would get through at once.
func (b *Backend) up() bool { return b.link.up() && b.server.link.up() }

// send carries a request to the server, when it can be reached.
func (b *Backend) send(ctx context.Context) error {
	select {
	case <-b.closed:
		return backend.ErrClosed
	default:
	}
	b.mu.Lock()
	err := b.failNext
	b.failNext = nil
	b.mu.Unlock()
	if err != nil {
		return err
	}
	b.server.ops.Add(1)
	return b.reach(ctx)
}

// receive carries the reply back.
func (b *Backend) receive(ctx context.Context) error {
	b.mu.Lock()
	drop := b.dropReply
	b.dropReply = false
	b.mu.Unlock()
	if drop {
		return backend.Fail(backend.ErrUnavailable, errNoReply)
	}
	return b.reach(ctx)
}

// reach waits until client and server are connected.
func (b *Backend) reach(ctx context.Context) error {
	if b.up() {
		return nil
	}
	for _, l := range []*link{&b.link, &b.server.link} {
		select {
		case <-l.whenUp():
		case <-ctx.Done():
			return backend.WaitEnded(ctx, false)
		case <-b.closed:
			return backend.ErrClosed
		}
	}
	return nil
}

// A link is a connection that can be down. The zero link is up.
type link struct {
	mu   sync.Mutex
	down chan struct{} // closed when the link is up again; nil: it is up
}

var alwaysUp = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil {
		l.down = make(chan struct{})
	}
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down != nil {
		close(l.down)
		l.down = nil
	}
}

func (l *link) whenUp() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil {
		return alwaysUp
	}
	return l.down
}

func (l *link) up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down == nil
}
