// Package slowsync stands for package sync where the library is built to be stopped at any of its
// mutexes: a goroutine that takes or leaves one may be stopped there, as a machine does that has
// other things to do.
package slowsync

import (
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/simulation/slowsync/patient"
)

var stops atomic.Pointer[func() time.Duration]

// Stop has each goroutine that takes or leaves a mutex sleep for as long as f says. Nil ends that.
func Stop(f func() time.Duration) {
	if f == nil {
		stops.Store(nil)
		return
	}
	stops.Store(&f)
}

func stop() {
	if f := stops.Load(); f != nil {
		if d := (*f)(); d > 0 && !isSpared() {
			time.Sleep(d)
		}
	}
	StandStill()
}

// spared are those who are not stopped: who checks the rules, and who has a mutex that is no
// patient one.
var spared = []string{"simulation.(*register)", "(*PubSub)", "sync.(*Once)"}

func isSpared() bool {
	var callers [60]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		for _, s := range spared {
			if strings.Contains(f.Function, s) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}

// A Mutex is a sync.Mutex.
type Mutex struct{ m patient.Mutex }

func (m *Mutex) TryLock() bool { return m.m.TryLock() }

func (m *Mutex) Lock() {
	stop()
	m.m.Lock()
	stop()
}

func (m *Mutex) Unlock() {
	m.m.Unlock()
	stop()
}

// A RWMutex is a sync.RWMutex.
type RWMutex struct{ m patient.RWMutex }

func (m *RWMutex) TryLock() bool  { return m.m.TryLock() }
func (m *RWMutex) TryRLock() bool { return m.m.TryRLock() }

func (m *RWMutex) Lock() {
	stop()
	m.m.Lock()
	stop()
}

func (m *RWMutex) Unlock() {
	m.m.Unlock()
	stop()
}

func (m *RWMutex) RLock() {
	stop()
	m.m.RLock()
	stop()
}

func (m *RWMutex) RUnlock() {
	m.m.RUnlock()
	stop()
}

// The rest of package sync, as it is.
type (
	Locker    = patient.Locker
	Cond      = patient.Cond
	Map       = patient.Map
	Once      = patient.Once
	Pool      = patient.Pool
	WaitGroup = patient.WaitGroup
)

func NewCond(l Locker) *Cond                             { return patient.NewCond(l) }
func OnceFunc(f func()) func()                           { return patient.OnceFunc(f) }
func OnceValue[T any](f func() T) func() T               { return patient.OnceValue(f) }
func OnceValues[T, U any](f func() (T, U)) func() (T, U) { return patient.OnceValues(f) }
