//go:build linux

package file

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A room checks who is in it together, and their tokens.
type room struct {
	mu               sync.Mutex
	writers, readers int
	lastWriter       uint64 // token
	phase            uint64 // the readers' token
	shared           bool   // readers were together
}

func (r *room) enter(t *testing.T, token uint64, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.writers++
	} else {
		r.readers++
	}
	if r.writers > 1 || r.writers == 1 && r.readers > 0 {
		t.Errorf("%d writers and %d readers inside", r.writers, r.readers)
	}
	if token <= r.lastWriter || token < r.phase || write && token == r.phase {
		t.Errorf("token %d after writer %d and readers %d", token, r.lastWriter, r.phase)
	}
	if !write && r.readers > 1 {
		r.shared = true
		if token != r.phase {
			t.Errorf("token %d in phase %d", token, r.phase)
		}
	}
	if write {
		r.lastWriter = token
	} else {
		r.phase = token
	}
}

func (r *room) leave(write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.writers--
	} else {
		r.readers--
	}
}

func TestRandomReadersAndWriters(t *testing.T) {
	const clients, rounds = 8, 100
	dir := t.TempDir()
	var r room
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
