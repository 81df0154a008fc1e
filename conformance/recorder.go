package conformance

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A recorder runs a property that may fail without failing the test that it is part
// of.
type recorder struct {
	testing.TB // of the test: what a recorder does not take over

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

// try runs f with a recorder, to the end of its cleanups.
func try(t testing.TB, f func(*recorder)) *recorder {
	r := &recorder{TB: t}
	inGoroutine(func() { f(r) })
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
		inGoroutine(last)
	}
}

// inGoroutine runs f in a goroutine of its own, which f may end.
func inGoroutine(f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	<-done
}

// output returns what the recorder has logged.
func (r *recorder) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *recorder) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.log, strings.TrimSuffix(text, "\n"))
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Helper()                      {}
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Log(args ...any)              { r.say(fmt.Sprintln(args...)) }
func (r *recorder) Logf(f string, args ...any)   { r.say(fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)            { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(f string, args ...any) { r.Logf(f, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)            { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(f string, args ...any) { r.Logf(f, args...); r.FailNow() }
func (r *recorder) Skip(args ...any)             { r.Log(args...); r.SkipNow() }
func (r *recorder) Skipf(f string, args ...any)  { r.Logf(f, args...); r.SkipNow() }
