package redis

import (
	"context"
	"sync"
	"time"
)

// A watch looks after locks that this client has handed over: nobody else
// notices that the next holder has died before it told the server so much as
// once. There is one timer for each lock, for as long as that may be.
type watch struct {
	mu     sync.Mutex
	closed bool
	timers map[string]*time.Timer // by main key
}

// after takes the reply to a release, downgrade or check: it says when somebody
// has to look at the lock.
func (b *Backend) after(k key, a answer) {
	d := a.millis(1)
	if a.plain {
		d = ofMillis(a.number)
	}
	if d > 0 {
		b.watch.plan(b, k, d)
	}
}

// plan has the lock checked in d, unless that is planned already.
func (w *watch) plan(b *Backend, k key, d time.Duration) {
	name := string(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.timers[name] != nil {
		return
	}
	if w.timers == nil {
		w.timers = make(map[string]*time.Timer)
	}
	w.timers[name] = time.AfterFunc(d, func() {
		w.forget(name)
		b.janitor.Go(func(ctx context.Context) { b.check(ctx, k) })
	})
}

func (w *watch) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.timers, name)
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, t := range w.timers {
		t.Stop()
	}
	w.timers = nil
}

// check has the server look at the lock, again as long as its holder has not
// confirmed that it is there.
func (b *Backend) check(ctx context.Context, k key) {
	a, err := b.run(ctx, attempt(unattended), checkScript, checkScript.call(k.args(5)))
	switch {
	case err == nil:
		b.after(k, a)
	case !hopeless(err):
		b.watch.plan(b, k, unattended)
	}
}
