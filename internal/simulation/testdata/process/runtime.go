package runtime

import (
	"internal/runtime/atomic"
	"unsafe"
)

// Goroutines that have the same profiler labels are a process here, which can be stopped: whoever
// is about to run after waiting for something is set aside, as one that sleeps.

var processes struct {
	lock    mutex
	count   atomic.Int32 // of stopped
	stopped [8]unsafe.Pointer
	aside   gList
}

// ProcessOf returns what stands for the process of the caller; nil: it is of none.
func ProcessOf() unsafe.Pointer { return getg().labels }

// EnterProcess has the caller be of a process, or of none.
func EnterProcess(p unsafe.Pointer) { getg().labels = p }

// StopProcess has each goroutine of a process do nothing from the next time on that it waits for
// something, or calls StandStill.
func StopProcess(p unsafe.Pointer) {
	lock(&processes.lock)
	for i, o := range processes.stopped {
		if o == nil {
			processes.stopped[i] = p
			processes.count.Add(1)
			break
		}
	}
	unlock(&processes.lock)
}

// ContinueProcess ends that for all of them, in an order that seed decides.
func ContinueProcess(p unsafe.Pointer, seed uint64) {
	var mine, others gList
	n := 0
	lock(&processes.lock)
	for i, o := range processes.stopped {
		if o == p {
			processes.stopped[i] = nil
			processes.count.Add(-1)
		}
	}
	for !processes.aside.empty() {
		if gp := processes.aside.pop(); gp.labels == p {
			mine.push(gp)
			n++
		} else {
			others.push(gp)
		}
	}
	processes.aside = others
	unlock(&processes.lock)
	all := make([]guintptr, n)
	for i := range all {
		all[i].set(mine.pop())
	}
	for i := n - 1; i > 0; i-- {
		seed = seed*6364136223846793005 + 1442695040888963407
		j := int((seed >> 33) % uint64(i+1))
		all[i], all[j] = all[j], all[i]
	}
	for _, gp := range all {
		goready(gp.ptr(), 0)
	}
}

// IsStopped reports whether the process of the caller is stopped.
func IsStopped() bool {
	gp := getg()
	if processes.count.Load() == 0 || gp.labels == nil {
		return false
	}
	lock(&processes.lock)
	stopped := isStopped(gp.labels)
	unlock(&processes.lock)
	return stopped
}

// StandStill has the caller wait for as long as its process is stopped.
func StandStill() {
	if IsStopped() {
		gopark(standStill, nil, waitReasonSleep, traceBlockGeneric, 1)
	}
}

func standStill(gp *g, _ unsafe.Pointer) bool {
	lock(&processes.lock)
	stopped := isStopped(gp.labels)
	if stopped {
		processes.aside.push(gp)
	}
	unlock(&processes.lock)
	return stopped
}

// isStopped is called with the lock.
func isStopped(p unsafe.Pointer) bool {
	for _, o := range processes.stopped {
		if o == p {
			return true
		}
	}
	return false
}

// setAside takes a goroutine that is about to run, and has waited for something until now, if its
// process is stopped. One that has waited for a mutex goes on: it may have that already.
func setAside(gp *g) bool {
	if gp.bubble == nil {
		return false
	}
	waited := gp.waitreason
	gp.waitreason = waitReasonPreempted // until it waits again
	began := waited == waitReasonZero
	if processes.count.Load() == 0 || gp.labels == nil || waited.isMutexWait() || !began && !waited.isIdleInSynctest() {
		return false
	}
	lock(&processes.lock)
	stopped := isStopped(gp.labels)
	if stopped {
		casGToWaiting(gp, _Grunnable, waitReasonSleep)
		processes.aside.push(gp)
	}
	unlock(&processes.lock)
	return stopped
}
