package quorum

import "sync"

// idle is how many goroutines are kept for the next request.
const idle = 32

// workers run functions side by side, on goroutines that are used again: their
// stacks have grown to what a request takes. The zero value is ready to use.
type workers struct {
	mu     sync.Mutex
	closed bool
	free   []chan func()
	all    sync.WaitGroup
}

// do runs f on a goroutine of its own. It reports false, and does nothing, after
// close.
func (w *workers) do(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if n := len(w.free); n > 0 {
		w.free[n-1] <- f
		w.free = w.free[:n-1]
		return true
	}
	w.all.Go(func() { w.work(f) })
	return true
}

func (w *workers) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !w.rest(next) {
			return
		}
		f = <-next
	}
}

// rest offers next for more work, unless there is enough of that.
func (w *workers) rest(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.free) == idle {
		return false
	}
	w.free = append(w.free, next)
	return true
}

// close waits for what is under way, and ends the goroutines.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	for _, next := range w.free {
		next <- nil
	}
	w.free = nil
	w.mu.Unlock()
	w.all.Wait()
}
