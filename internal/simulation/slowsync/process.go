package slowsync

import (
	"context"
	"runtime/pprof"
	"unsafe"
)

// A Process is all goroutines that have begun in it, and what their timers begin. Where the runtime
// is built for that it can be stopped as a whole; else it is a name.
type Process struct{ is unsafe.Pointer }

// What the runtime does that is built for processes.
var (
	processOf   = func() unsafe.Pointer { return nil }
	enter       = func(unsafe.Pointer) {}
	stopProcess = func(unsafe.Pointer) {}
	proceed     = func(unsafe.Pointer, uint64) {}
	isStopped   = func() bool { return false }
	standStill  = func() {}
)

// NewProcess returns a process that nobody is in.
func NewProcess(name string) Process {
	is := make(chan unsafe.Pointer)
	go func() {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("process", name)))
		is <- processOf()
	}()
	return Process{<-is}
}

// Run runs f in p. The zero process is that of who is in none.
func (p Process) Run(f func()) {
	before := processOf()
	enter(p.is)
	defer enter(before)
	f()
}

// HasProcesses reports whether the runtime is built for processes that can be stopped.
func HasProcesses() bool { return NewProcess("").is != nil }

// IsOwn reports whether the caller is in p.
func (p Process) IsOwn() bool { return p.is != nil && p.is == processOf() }

// Stop has all goroutines of p do nothing more. What is running goes on until it waits, takes or
// leaves a mutex, or calls StandStill.
func (p Process) Stop() { stopProcess(p.is) }

// Continue ends that, for one goroutine after the other, in an order that seed decides.
func (p Process) Continue(seed uint64) { proceed(p.is, seed) }

// StandStill has the caller wait for as long as its process is stopped.
func StandStill() {
	if isStopped() && !isSpared() {
		standStill()
	}
}
