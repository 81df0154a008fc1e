// Package patient stands for package sync where whoever waits for a mutex has to sleep: virtual
// time goes on meanwhile.
package patient

import (
	"sync"
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

// The rest of package sync, as it is.
type (
	Locker    = sync.Locker
	Cond      = sync.Cond
	Map       = sync.Map
	Once      = sync.Once
	Pool      = sync.Pool
	WaitGroup = sync.WaitGroup
)

func NewCond(l Locker) *Cond                             { return sync.NewCond(l) }
func OnceFunc(f func()) func()                           { return sync.OnceFunc(f) }
func OnceValue[T any](f func() T) func() T               { return sync.OnceValue(f) }
func OnceValues[T, U any](f func() (T, U)) func() (T, U) { return sync.OnceValues(f) }
