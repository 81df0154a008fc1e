package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
)

// TestHandOverIsNotRenewedLate waits for the first renewal of a lock that another client
// has handed over. The server keeps such a lock for a few seconds at first, so little of
// the TTL is left then, and nothing is late.
func TestHandOverIsNotRenewedLate(t *testing.T) {
	t.Parallel()
	const ttl = 6 * unconfirmed
	renewed := make(chan dlock.RenewedEvent, 10)
	var log warnings
	waiter := openClient(t, shared, &dlock.Options{TTL: ttl, Logger: log.logger(), Hooks: dlock.Hooks{
		Renewed: func(e dlock.RenewedEvent) { renewed <- e },
	}})
	holder := openClient(t, shared, &dlock.Options{TTL: ttl})
	first := must[*dlock.Lease](t)(holder.Mutex(t.Name()).Lock(within(t)))
	next := make(chan *dlock.Lease, 1)
	go func() { next <- must[*dlock.Lease](t)(waiter.Mutex(t.Name()).Lock(within(t))) }()
	eventually(t, "the other client waits", func() bool {
		lock := must[dlock.Snapshot](t)(holder.Inspect(within(t), t.Name()))
		return len(lock.Waiters) == 1
	})
	must[any](t)(nil, first.Unlock(within(t)))
	lease := <-next

	var e dlock.RenewedEvent
	select {
	case e = <-renewed:
	case <-time.After(limit):
		t.Fatal("not renewed")
	}
	if e.TTL > unconfirmed+time.Millisecond || e.Left <= 0 || e.Left > e.TTL {
		t.Errorf("%v of %v was left, want some of the %v that the server had granted", e.Left, e.TTL, unconfirmed)
	}
	must[any](t)(nil, lease.Unlock(within(t)))
	must[any](t)(nil, waiter.Close(within(t))) // what it logs is logged by then
	if text := log.String(); strings.Contains(text, "late") && e.Left > e.TTL/2 {
		t.Errorf("a renewal with %v of %v left was logged: %s", e.Left, e.TTL, text)
	}
}

// TestAllReadersGoOn has more readers wait for the end of a long minimum hold than one script lets in. All have
// the lock together, so none waits for another one that is let in, nor for some whose clients are gone.
func TestAllReadersGoOn(t *testing.T) {
	t.Parallel()
	const many, once, gone, soon = 300, 128, 130, 10 * time.Second // who is last of so many asks every two minutes
	longer := dlock.WithMinHold(2*unconfirmed + time.Second)       // than who has unlocked looks after it
	holder, reader := openClient(t, shared, &dlock.Options{TTL: limit}), openClient(t, shared, &dlock.Options{TTL: limit})
	admin := plainClient(t, shared)
	first := must[*dlock.Lease](t)(holder.Mutex(t.Name(), longer).Lock(within(t)))
	held := make(chan error, many)
	wait := func(readers, all int) {
		for range readers {
			go func() {
				_, err := reader.RWMutex(t.Name()).RLock(within(t))
				held <- err
			}()
		}
		eventually(t, "all wait", func() bool { return waiting(t, admin) == int64(all) })
	}
	wait(once, once)
	b := New(admin, nil)
	t.Cleanup(func() { must[any](t)(nil, b.Close(within(t))) })
	for i := range gone {
		dead := acquireScript.call(lockKey(t.Name()).args(5), fmt.Sprintf("r120000:dead%d:1", i), limit.Milliseconds(), "w")
		must[answer](t)(b.run(within(t), limit, acquireScript, dead))
	}
	wait(many-once, many+gone)
	must[any](t)(nil, first.Unlock(within(t)))
	must[any](t)(nil, <-held)
	end := time.After(soon)
	for have := 1; have < many; have++ {
		select {
		case err := <-held:
			must[any](t)(nil, err)
		case <-end:
			t.Fatalf("%d of %d readers have the lock %v after the first one", have, many, soon)
		}
	}
}

// TestReadersGoOnPastALostMachine has more readers wait than one script lets in, and next to one another those of a
// machine that is lost: the server counts them as listening, and they do not ask.
func TestReadersGoOnPastALostMachine(t *testing.T) {
	t.Parallel()
	const first, lost, rest, soon = 128, 30, 150, 10 * time.Second
	longer := dlock.WithMinHold(2*unconfirmed + time.Second) // than who has unlocked looks after it
	holder, reader := openClient(t, shared, &dlock.Options{TTL: limit}), openClient(t, shared, &dlock.Options{TTL: limit})
	others := make([]*dlock.Client, 20)
	for i := range others {
		others[i] = openClient(t, shared, &dlock.Options{TTL: limit})
	}
	admin := plainClient(t, shared)
	writer := must[*dlock.Lease](t)(holder.Mutex(t.Name(), longer).Lock(within(t)))
	held := make(chan error, first+rest)
	wait := func(c *dlock.Client) {
		go func() {
			_, err := c.RWMutex(t.Name()).RLock(within(t))
			held <- err
		}()
	}
	for range first {
		wait(reader)
	}
	eventually(t, "the first wait", func() bool { return waiting(t, admin) == first })
	b := New(admin, nil)
	t.Cleanup(func() { must[any](t)(nil, b.Close(within(t))) })
	for i := range lost {
		client := fmt.Sprintf("lost%d", i)
		heard := admin.Subscribe(within(t), channelPrefix+client)
		t.Cleanup(func() { _ = heard.Close() })
		must[any](t)(heard.Receive(within(t)))
		dead := acquireScript.call(lockKey(t.Name()).args(5), fmt.Sprintf("r120000:%s:1", client), limit.Milliseconds(), "w")
		must[answer](t)(b.run(within(t), limit, acquireScript, dead))
	}
	for i := range rest {
		wait(others[i%len(others)])
	}
	eventually(t, "all wait", func() bool { return waiting(t, admin) == first+lost+rest })
	must[any](t)(nil, writer.Unlock(within(t)))
	must[any](t)(nil, <-held)
	end := time.After(soon)
	for have := 1; have < first+rest; have++ {
		select {
		case err := <-held:
			must[any](t)(nil, err)
		case <-end:
			t.Fatalf("%d of %d readers have the lock %v after the first one", have, first+rest, soon)
		}
	}
}

// TestOnlyWhoIsLeftIsAwaited lets several readers in at once, and nobody waits behind them: none is told
// that somebody does, which would have it end its hold soon.
func TestOnlyWhoIsLeftIsAwaited(t *testing.T) {
	t.Parallel()
	admin := plainClient(t, shared)
	holder, reader := openClient(t, shared, &dlock.Options{TTL: limit}), openClient(t, shared, &dlock.Options{TTL: limit})
	first := must[*dlock.Lease](t)(holder.Mutex(t.Name()).Lock(within(t)))
	held := make(chan error, 3)
	for range cap(held) {
		go func() {
			_, err := reader.RWMutex(t.Name()).RLock(within(t))
			held <- err
		}()
	}
	eventually(t, "all wait", func() bool { return waiting(t, admin) == int64(cap(held)) })
	told := grantsTold(t, admin)
	must[any](t)(nil, first.Unlock(within(t)))
	for range cap(held) {
		must[any](t)(nil, <-held)
		if text := <-told; !strings.Contains(text, " 0 ") {
			t.Errorf("a reader is told that somebody waits: %s", text)
		}
	}
}

// grantsTold has the messages by which servers tell waiters that they have the lock of a test.
func grantsTold(t *testing.T, c *redis.Client) <-chan string {
	t.Helper()
	ps := c.PSubscribe(context.Background(), channelPrefix+"*")
	t.Cleanup(func() { _ = ps.Close() })
	must[any](t)(ps.Receive(within(t)))
	told := make(chan string, 16)
	go func() {
		for m := range ps.Channel() {
			if strings.HasSuffix(m.Payload, " "+mainKey(t.Name())) {
				told <- m.Payload
			}
		}
	}()
	return told
}
