package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A register is what one lock protects: a number that every holder reads, and then
// writes one greater.
type register struct {
	mu     sync.Mutex
	value  int64
	tokens map[uint64]bool // of all writes
	token  uint64          // the greatest of them
	lost   int             // writes of others that came between a holder's read and its write
	repeat int             // writes under the token of an earlier hold
	late   int             // writes under a token smaller than an earlier one
}

func (r *register) read() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value
}

// write is that of a holder that has read was. It reports whether the holder
// believed in its lease until then.
func (r *register) write(l *dlock.Lease, was int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Err() != nil {
		return false
	}
	if r.value != was {
		r.lost++
	}
	switch token := l.Token(); {
	case r.tokens[token]:
		r.repeat++
	case token < r.token:
		r.late++
	}
	r.tokens[l.Token()] = true
	r.value, r.token = was+1, max(r.token, l.Token())
	return true
}

// Updates are clients that guard registers by locks and write to them all the time.
type updates struct {
	t         *testing.T
	names     []string
	registers []register
	done      []atomic.Int64 // writes, by client
	ended     atomic.Int64   // holds that were over before they were released

	stop context.CancelFunc
	all  sync.WaitGroup
}

// startUpdates has clients work on locks of the given names until end.
func startUpdates(t *testing.T, clients []*dlock.Client, names ...string) *updates {
	t.Helper()
	u := &updates{t: t, names: names, registers: make([]register, len(names)), done: make([]atomic.Int64, len(clients))}
	var ctx context.Context
	ctx, u.stop = context.WithCancel(context.Background())
	t.Cleanup(u.end)
	for i := range u.registers {
		u.registers[i].tokens = make(map[uint64]bool)
	}
	for i, c := range clients {
		u.all.Go(func() {
			for turn := i; ctx.Err() == nil; turn++ {
				u.update(ctx, c, turn%len(names), &u.done[i])
			}
		})
	}
	return u
}

func (u *updates) update(ctx context.Context, c *dlock.Client, name int, done *atomic.Int64) {
	l, err := c.Mutex(u.names[name]).Lock(ctx)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, dlock.ErrUnavailable) {
			u.t.Errorf("lock: %v", err)
		}
		return
	}
	r := &u.registers[name]
	was := r.read()
	time.Sleep(workTime)
	wrote := r.write(l, was)
	if err := l.Unlock(context.Background()); !wrote || errors.Is(err, dlock.ErrLost) {
		u.ended.Add(1)
	}
	if wrote {
		done.Add(1)
	}
}

// works waits until every client has made more updates.
func (u *updates) works() {
	u.t.Helper()
	want := make([]int64, len(u.done))
	for i := range u.done {
		want[i] = u.done[i].Load() + 3
	}
	for i := range u.done {
		eventually(u.t, fmt.Sprintf("client %d works", i), func() bool { return u.done[i].Load() >= want[i] })
	}
}

// end stops the clients.
func (u *updates) end() {
	u.stop()
	u.all.Wait()
}

// severalAt is n clients at url.
func severalAt(t *testing.T, url string, n int, o *dlock.Options) []*dlock.Client {
	t.Helper()
	all := make([]*dlock.Client, n)
	for i := range all {
		all[i] = openURL(t, url, o)
	}
	return all
}

// A loss is what may become of holds and updates by nature.
type loss bool

const (
	nothing      loss = false // the new master knows all that the old one did
	whatIsRecent loss = true  // what no replica had yet: the fencing token is for that
)

// check stops the clients and checks what they did.
func (u *updates) check(may loss) {
	u.t.Helper()
	u.end()
	var made, kept int64
	var lost, repeat, late int
	for i := range u.done {
		made += u.done[i].Load()
	}
	for i := range u.registers {
		r := &u.registers[i]
		kept, lost, repeat, late = kept+r.value, lost+r.lost, repeat+r.repeat, late+r.late
	}
	u.t.Logf("%d updates by %d clients, %d kept; %d overwritten, %d under a token that was used before, %d under a smaller one; %d holds ended early",
		made, len(u.done), kept, lost, repeat, late, u.ended.Load())
	if repeat > 0 {
		u.t.Errorf("%d tokens came twice", repeat)
	}
	if may == nothing && (kept != made || lost > 0 || late > 0 || u.ended.Load() > 0) {
		u.t.Errorf("%d updates, %d kept, %d overwritten, %d late, %d holds ended early", made, kept, lost, late, u.ended.Load())
	}
}

// slug is the test's name as a part of a lock's.
func slug(t testing.TB) string { return strings.ReplaceAll(t.Name(), "/", "-") }
