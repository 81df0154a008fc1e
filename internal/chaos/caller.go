package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/clock"
)

// The workloads, by the beginning of a key. The first two are one key each for
// the whole run; the others change from time to time, which keeps the history
// of each short enough to search all its orders.
const (
	plain  = "plain"  // a number in a file
	fenced = "fenced" // a number in the store, which checks tokens
	mutex  = "mutex"
	rw     = "rw"
)

// patience is how long a caller waits for a lock, in TTLs.
const patience = 20

// A caller is one goroutine of a worker.
type caller struct {
	*worker
	number   int
	rng      *rand.Rand
	own      string // a key that nobody else asks for
	store    *storeConn
	isBehind bool // the nemesis waits for this caller to hold a lock that all want
}

// key picks what to lock next.
func (h *caller) key() string {
	if h.isBehind {
		return [...]string{plain, fenced}[h.number%2]
	}
	epoch := clock.Now() / int64(8*h.TTL)
	switch n := h.rng.IntN(10); {
	case n < 2:
		return plain
	case n < 4:
		return fenced
	case n < 6:
		return fmt.Sprintf("%s/%d", mutex, epoch)
	case n < 7:
		return fmt.Sprintf("%s/%d", rw, epoch)
	}
	return h.own
}

// turn takes a lock, works under it and gives it back. It reports whether it
// had the lock.
func (h *caller) turn(ctx context.Context) bool {
	if h.rng.IntN(12) == 0 && !h.isBehind {
		return h.both(ctx)
	}
	key := h.key()
	c := call{caller: h, key: key, try: h.rng.IntN(6) == 0 && !h.isBehind}
	c.shared = strings.HasPrefix(key, rw) && h.rng.IntN(4) > 0
	wait := patience * h.TTL
	if h.rng.IntN(12) == 0 && !h.isBehind {
		wait = time.Duration(h.rng.Int64N(int64(h.TTL / 10)))
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if !c.enter(ctx) {
		return false
	}
	if h.rng.IntN(5) == 0 {
		h.again(c)
	}
	c.work()
	leave(c.lease, &c)
	return true
}

// both is a turn with two locks that are taken together.
func (h *caller) both(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience*h.TTL)
	defer cancel()
	calls := []*call{{caller: h, key: plain}, {caller: h, key: fenced}}
	names := []string{plain, fenced}
	h.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, c := range calls {
		c.ask()
	}
	lease, err := h.client.Multi(names).Lock(ctx)
	at := clock.Now()
	if errors.Is(err, dlock.ErrHeld) {
		err = errOther
	}
	for _, c := range calls {
		c.answered(at, lease, err)
	}
	if err != nil {
		return false
	}
	for _, c := range calls {
		c.work()
	}
	leave(lease, calls...)
	return true
}

// errOther is why a lock is not granted that was asked for together with one
// that is held. It may have been free.
var errOther = fmt.Errorf("one of two: %w", &dlock.Error{Op: "lock"})

// again enters a lock that is held already.
func (h *caller) again(outer call) {
	ctx, cancel := context.WithTimeout(context.Background(), patience*h.TTL)
	defer cancel()
	inner := call{caller: h, key: outer.key, under: outer.id, shared: outer.shared || h.rng.IntN(4) == 0}
	if inner.enter(outer.lease.Context(ctx)) {
		leave(inner.lease, &inner)
	}
}

// A call is one request for a lock, and the hold that comes of it.
type call struct {
	*caller
	id          int
	key         string
	shared, try bool
	under       int
	lease       *dlock.Lease
	token       uint64
}

func (c *call) note(e Event) {
	e.Call, e.Key = c.id, c.key
	c.journal.write(e)
}

// enter asks for the lock.
func (c *call) enter(ctx context.Context) bool {
	lock := c.client.RWMutex(c.key)
	take := map[[2]bool]func(context.Context) (*dlock.Lease, error){
		{false, false}: lock.Lock, {false, true}: lock.TryLock, {true, false}: lock.RLock, {true, true}: lock.TryRLock,
	}[[2]bool{c.shared, c.try}]
	c.ask()
	lease, err := take(ctx)
	c.answered(clock.Now(), lease, err)
	return err == nil
}

func (c *call) ask() {
	c.id = int(c.calls.Add(1))
	c.note(Event{At: clock.Now(), Kind: Asked, Shared: c.shared, Try: c.try, Under: c.under})
}

func (c *call) answered(at int64, lease *dlock.Lease, err error) {
	if err != nil {
		c.note(Event{At: at, Kind: Failed, Err: classify(err), Text: err.Error()})
		return
	}
	c.lease, c.token = lease, lease.TokenOf(c.key)
	c.note(Event{At: at, Kind: Granted, Token: c.token})
	c.watches.Go(c.watch)
}

// watch notes when the lease ends by itself.
func (c *call) watch() {
	<-c.lease.Done()
	at := clock.Now()
	if errors.Is(c.lease.Err(), dlock.ErrLost) {
		c.note(Event{At: at, Kind: Lost, Text: c.lease.Err().Error()})
	}
}

// leave gives back the lock, or all those that the lease is on.
func leave(lease *dlock.Lease, calls ...*call) {
	at := clock.Now()
	for _, c := range calls {
		c.note(Event{At: at, Kind: Unlocking})
	}
	err := lease.Unlock(context.Background())
	e := Event{At: clock.Now(), Kind: Unlocked}
	if err != nil {
		e.Err, e.Text = classify(err), err.Error()
	}
	for _, c := range calls {
		c.note(e)
	}
}

// work does what the key is for, and now and then takes so long about it that a
// fault finds the lock held.
func (c *call) work() {
	var err error
	switch {
	case c.shared || c.lease.Err() != nil:
	case c.key == plain:
		err = c.addPlain()
	case c.key == fenced:
		err = c.addFenced()
	}
	if err != nil {
		panic(err)
	}
	if n := c.rng.IntN(100); n == 0 && !c.isBehind {
		backend.Sleep(c.lease.Context(context.Background()), time.Duration(c.rng.Int64N(int64(2*c.TTL))))
	} else if n < 20 {
		backend.Sleep(context.Background(), time.Duration(c.rng.Int64N(int64(2*time.Millisecond))))
	}
}

func (c *call) addPlain() error {
	seen, err := addOne(filepath.Join(c.Dir, plain))
	if err == nil {
		c.note(Event{At: clock.Now(), Kind: Wrote, Seen: seen})
	}
	return err
}

func (c *call) addFenced() error {
	value, ok, err := c.store.ask("get %s %d", c.key, c.token)
	if err != nil || !ok {
		return err
	}
	_, _, err = c.store.ask("put %s %d %d", c.key, c.token, value+1)
	return err
}
