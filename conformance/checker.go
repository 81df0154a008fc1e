package conformance

import (
	"fmt"
	"sync"

	"github.com/dlock-go/dlock"
)

// A checker stands for what a lock protects. It notices a writer beside anybody else, and
// it is a fenced store: it notices a token older than one it has seen.
type checker struct {
	mu       sync.Mutex
	writers  int
	readers  int
	peak     int    // the most readers at once
	newest   uint64 // the greatest token
	writer   uint64 // the greatest token of a writer
	visits   int
	problems []string
}

// enter says that the holder of lease is inside.
func (r *checker) enter(lease *dlock.Lease, exclusive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.visits++
	if exclusive {
		r.writers++
	} else {
		r.readers++
		r.peak = max(r.peak, r.readers)
	}
	if r.writers > 1 || r.writers == 1 && r.readers > 0 {
		r.problem("%d writers and %d readers are inside", r.writers, r.readers)
	}
	r.accept(lease.Token(), exclusive)
}

// accept takes a write that carries token, as a fenced store does: a writer's
// must be the greatest so far, a reader's greater than the last writer's.
func (r *checker) accept(token uint64, exclusive bool) {
	last := r.newest
	if !exclusive {
		last = r.writer
	}
	if token <= last {
		r.problem("token %d came after %d", token, last)
	}
	r.newest = max(r.newest, token)
	if exclusive {
		r.writer = token
	}
}

func (r *checker) leave(exclusive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if exclusive {
		r.writers--
	} else {
		r.readers--
	}
}

func (r *checker) problem(format string, args ...any) {
	if len(r.problems) < 10 {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// report fails s if anything was wrong, or if not all visits took place.
func (r *checker) report(s *scenario, visits int) {
	s.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.problems {
		s.Error(p)
	}
	if r.visits != visits {
		s.Errorf("%d visits, want %d", r.visits, visits)
	}
}

// visit locks l, goes in and out, and unlocks.
func (s *scenario) visit(r *checker, l dlock.Locker, exclusive bool) {
	lease, err := l.Lock(s.ctx)
	if err != nil {
		s.Errorf("lock: %v", err)
		return
	}
	r.enter(lease, exclusive)
	r.leave(exclusive)
	if err := lease.Unlock(s.ctx); err != nil {
		s.Errorf("unlock: %v", err)
	}
}
