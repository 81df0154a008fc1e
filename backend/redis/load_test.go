package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
)

// A fence is a store that refuses a token smaller than the greatest it has seen.
type fence struct {
	mu      sync.Mutex
	highest uint64
	hold    int64 // whose it is
}

func (f *fence) greatest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// write reports an error if two holds have one token.
func (f *fence) write(hold int64, token uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token == f.highest && hold != f.hold {
		return fmt.Errorf("two holds have the token %d", token)
	}
	if token > f.highest {
		f.highest, f.hold = token, hold
	}
	return nil
}

// A load is clients that take a few locks in turns, each twice,
// and write to a fenced store under them.
type load struct {
	t      *testing.T
	names  []string
	fences []fence
	holds  atomic.Int64
	rounds []atomic.Int64 // by client

	// exclusive says that no two may hold at once, whatever happens.
	exclusive bool
	inside    []atomic.Int64 // the hold that was last seen inside, by name

	stop context.CancelFunc
	all  sync.WaitGroup
}

const loadClients = 20

// workTime is how long a turn with a lock takes beside its requests. Somebody waits for
// every lock all the same, and the machine can do other things.
const workTime = 5 * time.Millisecond

// startLoad has clients at url work on locks of the given names until end.
func startLoad(t *testing.T, url string, ttl time.Duration, exclusive bool, names ...string) *load {
	t.Helper()
	c := &load{
		t: t, names: names, fences: make([]fence, len(names)), rounds: make([]atomic.Int64, loadClients),
		exclusive: exclusive, inside: make([]atomic.Int64, len(names)),
	}
	clients := make([]*dlock.Client, loadClients)
	for i := range clients {
		clients[i] = openURL(t, url, &dlock.Options{TTL: ttl})
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(c.end)
	for i, client := range clients {
		c.all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.round(ctx, client, (i+n)%len(names), i)
			}
		})
	}
	return c
}

// end stops the clients at the end of their rounds.
func (c *load) end() {
	c.stop()
	c.all.Wait()
}

// works waits until every client has finished a few more rounds.
func (c *load) works() {
	c.t.Helper()
	var want []int64
	for i := range c.rounds {
		want = append(want, c.rounds[i].Load()+3)
	}
	for i := range c.rounds {
		eventually(c.t, fmt.Sprintf("client %d works", i), func() bool { return c.rounds[i].Load() >= want[i] })
	}
}

func (c *load) round(ctx context.Context, client *dlock.Client, name, worker int) {
	m, before := client.Mutex(c.names[name]), c.fences[name].greatest()
	lease, err := m.Lock(ctx)
	if err != nil {
		c.tolerate(ctx, "lock", err)
		return
	}
	hold := c.holds.Add(1)
	if lease.Token() <= before {
		c.t.Errorf("token %d of a lock asked for when the store had seen %d", lease.Token(), before)
	}
	c.inside[name].Store(hold)
	if nested, err := m.Lock(lease.Context(ctx)); err == nil {
		if err := c.fences[name].write(hold, nested.Token()); err != nil {
			c.t.Error(err)
		}
		time.Sleep(workTime)
		c.tolerate(ctx, "inner unlock", nested.Unlock(context.Background()))
	} else {
		c.tolerate(ctx, "nested lock", err)
	}
	if other := c.inside[name].Load(); c.exclusive && other != hold && lease.Err() == nil {
		c.t.Errorf("somebody has held the lock beside another")
	}
	if err := lease.Unlock(context.Background()); err == nil {
		c.rounds[worker].Add(1)
	} else {
		c.tolerate(ctx, "unlock", err)
	}
}

// tolerate takes what may become of a call while servers come and go.
func (c *load) tolerate(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, dlock.ErrLost) {
		return
	}
	c.t.Errorf("%s: %v", what, err)
}

// checkCounts enters the locks anew: the count on the server says how often.
func (c *load) checkCounts(url string, admin redis.Cmdable) {
	c.t.Helper()
	ctx := within(c.t)
	client := openURL(c.t, url, nil)
	for _, name := range c.names {
		count := func(want int) {
			c.t.Helper()
			n, err := strconv.Atoi(admin.HGet(ctx, mainKey(name), "n").Val())
			if err != nil || n != want {
				c.t.Errorf("%s: entered %d times, want %d (%v)", name, n, want, err)
			}
		}
		m := client.Mutex(name)
		l := must[*dlock.Lease](c.t)(m.Lock(ctx))
		count(1)
		nested := must[*dlock.Lease](c.t)(m.Lock(l.Context(ctx)))
		count(2)
		must[any](c.t)(nil, nested.Unlock(ctx))
		count(1)
		must[any](c.t)(nil, l.Unlock(ctx))
	}
}
