package chaos

import (
	"sync"
	"time"
)

// report collects what the tests saw.
var report = &findings{parts: make(map[string]part), stops: make(map[string]int)}

type findings struct {
	mu      sync.Mutex
	results []*Result
	parts   map[string]part
	stops   map[string]int
}

// A part is what became of the rounds under a partition.
type part struct {
	inTime, rounds int
	least          time.Duration
}

func (f *findings) run(r *Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results = append(f.results, r)
}

func (f *findings) partition(backend string, inTime, rounds int, least time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts[backend] = part{inTime, rounds, least}
}

func (f *findings) stopped(backend string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops[backend] = n
}
