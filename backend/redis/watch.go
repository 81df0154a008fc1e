package redis

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A watch looks after locks that this client has handed over: nobody else
// notices that the next holder has died before it told the server so much as
// once. There is one timer for each lock, for as long as that may be.
type watch struct {
	mu     sync.Mutex
	closed bool
	timers map[string]planned // by main key
}

// A planned check can be replaced by a sooner one.
type planned struct {
	timer *time.Timer
	at    time.Time
}

// checkLater takes the reply to a release, a conversion or a check: it says when somebody
// has to look at the lock.
func (b *Backend) checkLater(k key, a answer) {
	d := a.millis(1)
	if a.plain {
		d = fromMillis(a.number)
	}
	if d > 0 {
		b.watch.plan(b, k, d)
	}
}

// plan has the lock checked in d, unless a check is planned that comes sooner. A later one
// is dropped: a hold that ends by itself may end sooner than a grant that nobody confirms.
func (w *watch) plan(b *Backend, k key, d time.Duration) {
	name, at := string(k), time.Now().Add(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	old, found := w.timers[name]
	switch {
	case w.closed, found && !at.Before(old.at):
		return
	case found:
		old.timer.Stop()
	case w.timers == nil:
		w.timers = make(map[string]planned)
	}
	w.timers[name] = planned{time.AfterFunc(d, func() {
		w.forget(name)
		b.janitor.Go(func(ctx context.Context) { b.check(ctx, k) })
	}), at}
}

func (w *watch) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.timers, name)
}

// close ends the watch. It returns the locks that were to be looked at.
func (w *watch) close() (left []key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for name, p := range w.timers {
		p.timer.Stop()
		left = append(left, key(name))
	}
	w.timers = nil
	return left
}

// lastLook bounds what Close does for locks that this client has let go of.
const lastLook = 500 * time.Millisecond

// endWatch looks a last time at the locks that this client would look at later, such as one
// that is kept for a while (backend.Expirer): the head of a queue hears that it is the head,
// and then looks itself.
func (b *Backend) endWatch(ctx context.Context) {
	ctx, cancel := backend.Bound(ctx, lastLook)
	defer cancel()
	var all sync.WaitGroup
	for _, k := range b.watch.close() {
		all.Go(func() { b.check(ctx, k) })
	}
	all.Wait()
}

// check has the server look at the lock, again as long as its holder has not
// confirmed that it is there. Often nothing was asked for a time before, and connections that
// broke meanwhile show that only now: see repeat.
func (b *Backend) check(ctx context.Context, k key) {
	var again repeat
	for {
		a, err := b.run(ctx, replyTimeout(unconfirmed), checkScript, checkScript.call(k.args(5)))
		switch {
		case err == nil:
			b.checkLater(k, a)
		case ctx.Err() == nil && again.isStale(b, err):
			continue
		case !isHopeless(err):
			b.watch.plan(b, k, unconfirmed)
		}
		return
	}
}
