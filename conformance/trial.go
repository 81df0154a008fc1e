package conformance

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A trial runs a property that may fail without failing the test that it is part
// of.
type trial struct {
	testing.TB // of the test: what a trial does not take over

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

// try runs f with a trial, to the end of its cleanups.
func try(t testing.TB, f func(*trial)) *trial {
	r := &trial{TB: t}
	apart(func() { f(r) })
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return r
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		apart(last)
	}
}

// apart runs f in a goroutine of its own, which f may end.
func apart(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

// said returns what the trial has logged.
func (r *trial) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *trial) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.log, strings.TrimSuffix(text, "\n"))
}

func (r *trial) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *trial) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *trial) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *trial) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

func (r *trial) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *trial) Helper()                      {}
func (r *trial) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *trial) Log(args ...any)              { r.say(fmt.Sprintln(args...)) }
func (r *trial) Logf(f string, args ...any)   { r.say(fmt.Sprintf(f, args...)) }
func (r *trial) Error(args ...any)            { r.Log(args...); r.Fail() }
func (r *trial) Errorf(f string, args ...any) { r.Logf(f, args...); r.Fail() }
func (r *trial) Fatal(args ...any)            { r.Log(args...); r.FailNow() }
func (r *trial) Fatalf(f string, args ...any) { r.Logf(f, args...); r.FailNow() }
func (r *trial) Skip(args ...any)             { r.Log(args...); r.SkipNow() }
func (r *trial) Skipf(f string, args ...any)  { r.Logf(f, args...); r.SkipNow() }
