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

// after takes the reply to a release or downgrade: somebody waits, or has been
// let in and not confirmed it.
func (b *Backend) after(k *keys, a answer) {
	waiting, more, rest := a.int(2), a.int(3), time.Duration(a.int(4))*time.Millisecond
	if more != 0 {
		b.watch.plan(b, k, 0)
	} else if waiting > 0 || rest > 0 && rest <= unattended {
		b.watch.plan(b, k, min(rest, unattended)+5*time.Millisecond)
	}
}

// plan has the lock checked in d, unless that is planned already.
func (w *watch) plan(b *Backend, k *keys, d time.Duration) {
	name := k.names[0]
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
func (b *Backend) check(ctx context.Context, k *keys) {
	a, err := b.run(ctx, attempt(unattended), checkScript, checkScript.call(k.args[:4]))
	more, rest := a.int(3), time.Duration(a.int(4))*time.Millisecond
	switch {
	case err != nil && hopeless(err):
	case err != nil:
		b.watch.plan(b, k, unattended)
	case more != 0:
		b.watch.plan(b, k, 0)
	case rest > 0 && rest <= unattended:
		b.watch.plan(b, k, rest+5*time.Millisecond)
	}
}
