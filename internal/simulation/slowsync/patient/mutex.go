package patient

import (
	"sync"
	"sync/atomic"
	"time"
)

// Between two looks at a mutex that somebody has.
const (
	shortest = 10 * time.Microsecond
	longest  = time.Millisecond
)

// await calls try until it has what it is about.
func await(try func() bool) {
	for d := shortest; !try(); d = min(2*d, longest) {
		time.Sleep(d)
	}
}

// A Mutex is a sync.Mutex.
type Mutex struct{ sync.Mutex }

func (m *Mutex) Lock() { await(m.TryLock) }

// A RWMutex is a sync.RWMutex.
type RWMutex struct{ sync.RWMutex }

func (m *RWMutex) Lock()  { await(m.TryLock) }
func (m *RWMutex) RLock() { await(m.TryRLock) }

// A Once is a sync.Once.
type Once struct {
	mu   Mutex
	done atomic.Bool
}

func (o *Once) Do(f func()) {
	if o.done.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done.Load() {
		defer o.done.Store(true)
		f()
	}
}
