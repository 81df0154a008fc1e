package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// Waiters that ask again and again are denied for a moment, together, as while a password changes.
// Those that give up leave the queues.
func TestDeniedWaitersLeaveTheQueue(t *testing.T) {
	t.Parallel()
	const n = 10
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin, set := withUser(t, s)
	holder := openClient(t, s, nil)
	waiter := openURL(t, "redis://app:old@"+s.Addr()+"?dlock.wake=poll&dlock.poll=20ms", nil)
	waiting := func() (all int) {
		for i := range n {
			all += int(admin.ZCard(ctx, mainKey(fmt.Sprint("a", i))+":q").Val())
		}
		return all
	}
	done := make(chan error, n)
	for i := range n {
		name := fmt.Sprint("a", i)
		held := must[*dlock.Lease](t)(holder.Mutex(name).Lock(ctx))
		defer func() { must[any](t)(nil, held.Unlock(ctx)) }()
		go func() {
			_, err := waiter.Mutex(name).Lock(ctx)
			done <- err
		}()
	}
	eventually(t, "they wait", func() bool { return waiting() == n })
	set("resetpass", ">new")
	must[any](t)(admin.Do(ctx, "client", "kill", "user", "app").Result())
	for range n {
		is(t, <-done, dlock.ErrAuth)
	}
	set("resetpass", ">old")
	eventually(t, "they leave", func() bool { return waiting() == 0 }) // nobody else looks after the queues
}

// A waiter is granted the lock, and has that confirmed, as it must not be renewed. The password
// changes as that is carried out, and the reply is lost. The lock is given back as soon as the
// client is let in again, and not after a lease.
func TestLoginChangesUnderAConfirmation(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	s := server.Start(t, server.Redis{})
	admin, set := withUser(t, s)
	p := must[*faultnet.Proxy](t)(faultnet.Listen(s.Addr()))
	t.Cleanup(func() { _ = p.Close() })
	p.SetFraming(faultnet.RESP)
	holder := openClient(t, s, nil)
	c := openURL(t, "redis://app:old@"+p.Addr()+"?pool_size=1", &dlock.Options{TTL: time.Hour})
	held := must[*dlock.Lease](t)(holder.Mutex("a").Lock(ctx))
	done := make(chan error, 1)
	go func() {
		_, err := c.Mutex("a", dlock.WithMaxHold(time.Hour/2)).Lock(ctx)
		done <- err
	}()
	eventually(t, "it waits", func() bool { return admin.ZCard(ctx, mainKey("a")+":q").Val() == 1 })
	must[string](t)(admin.ScriptLoad(ctx, renewScript.source).Result())
	set("resetpass", ">new")
	p.DropReplyAfter(runs(renewScript))
	must[any](t)(nil, held.Unlock(ctx))
	err := <-done
	is(t, err, dlock.ErrAuth)
	if must[string](t)(admin.HGet(ctx, mainKey("a"), "o").Result()) == "" {
		t.Fatal("the lock was not granted")
	}
	set("resetpass", ">old")
	eventually(t, "the lock is given back", func() bool {
		return !must[bool](t)(admin.HExists(ctx, mainKey("a"), "o").Result())
	})
}
