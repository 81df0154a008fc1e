package conformance

import (
	"fmt"
	"sync"
	"time"
)

// A stallClock notices when this process gets no processor: a goroutine that
// sleeps for a tick at a time wakes up late.
type stallClock struct {
	once sync.Once

	mu     sync.Mutex
	stalls []stall // of the last hour or so
}

// A stall is a time in which this process did not run.
type stall struct {
	from time.Time
	took time.Duration
}

const (
	stallTick  = 20 * time.Millisecond
	stallNoted = 100 * time.Millisecond // shorter ones are every machine's
	stallsKept = 1000
)

var stallTime stallClock

// run starts the clock, once in the life of a process.
func (c *stallClock) run() {
	c.once.Do(func() {
		go func() {
			for last := time.Now(); ; {
				time.Sleep(stallTick)
				now := time.Now()
				if took := now.Sub(last) - stallTick; took >= stallNoted {
					c.add(stall{last, took})
				}
				last = now
			}
		}()
	})
}

func (c *stallClock) add(s stall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls = append(c.stalls[max(0, len(c.stalls)-stallsKept+1):], s)
}

// stalled returns for how long, of the time since t, this process did not run.
func (c *stallClock) stalled(t time.Time) (sum time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stalls {
		if s.from.Add(s.took).After(t) {
			sum += s.took
		}
	}
	return sum
}

// since says in words when this process did not run.
func (c *stallClock) since(t time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := ""
	for _, s := range c.stalls {
		if s.from.Add(s.took).After(t) {
			out += fmt.Sprintf("; this process did not run for %v at +%.3fs", s.took.Round(time.Millisecond), s.from.Sub(t).Seconds())
		}
	}
	if out == "" {
		return "this process had a processor all the time"
	}
	return out[len("; "):]
}
