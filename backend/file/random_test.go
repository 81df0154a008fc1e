//go:build linux

package file

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A checker checks who holds the lock together, and their tokens.
type checker struct {
	mu               sync.Mutex
	writers, readers int
	lastWriter       uint64 // token
	phase            uint64 // the readers' token
	shared           bool   // readers were together
}

func (c *checker) enter(t *testing.T, token uint64, write bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if write {
		c.writers++
	} else {
		c.readers++
	}
	if c.writers > 1 || c.writers == 1 && c.readers > 0 {
		t.Errorf("%d writers and %d readers inside", c.writers, c.readers)
	}
	if token <= c.lastWriter || token < c.phase || write && token == c.phase {
		t.Errorf("token %d after writer %d and readers %d", token, c.lastWriter, c.phase)
	}
	if !write && c.readers > 1 {
		c.shared = true
		if token != c.phase {
			t.Errorf("token %d in phase %d", token, c.phase)
		}
	}
	if write {
		c.lastWriter = token
	} else {
		c.phase = token
	}
}

func (c *checker) leave(write bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if write {
		c.writers--
	} else {
		c.readers--
	}
}

func TestRandomReadersAndWriters(t *testing.T) {
	const clients, rounds = 8, 100
	dir := t.TempDir()
	var r checker
	var all sync.WaitGroup
	for _, c := range newClients(t, dir, clients) {
		all.Go(func() {
			for range rounds {
				write := rand.N(10) == 0
				var l dlock.Locker = c.RWMutex("lock").RLocker()
				if write {
					l = c.Mutex("lock")
				}
				lease := mustLock(t, l)
				r.enter(t, lease.Token(), write)
				time.Sleep(rand.N(200 * time.Microsecond)) // the work
				r.leave(write)
				mustUnlock(t, lease)
			}
		})
	}
	all.Wait()
	if !r.shared {
		t.Error("readers never shared")
	}
}
