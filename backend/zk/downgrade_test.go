package zk_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// TestRenewDuringDowngrade gives up on a downgrade, which goes on. The hold stands,
// whatever becomes of its node.
func TestRenewDuringDowngrade(t *testing.T) {
	p := proxyTo(t, shared.Addr())
	b, err := zk.Connect(testContext(t), []string{p.Addr()}, &zk.Options{Root: rootOf(t), SessionTimeout: 20 * time.Second})
	must(t, err)
	defer b.Close(context.Background())
	h, err := b.Acquire(testContext(t), backend.Request{Name: "m", Mode: backend.Exclusive, TTL: 20 * time.Second, Wait: true})
	must(t, err)
	p.Blackhole(faultnet.ToClient)
	ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
	defer cancel()
	wantError(t, b.Downgrade(ctx, h), backend.ErrUnavailable)
	renew := func() (answer error) {
		b.Renew(testContext(t), []*backend.Hold{h}, func(_ *backend.Hold, err error) { answer = err })
		return answer
	}
	must(t, renew()) // by the lease that the lock was granted under
	p.Restore(faultnet.ToClient)
	eventually(t, "the node is a reader's", func() bool { return b.Downgrade(testContext(t), h) == nil })
	must(t, renew())
	must(t, b.Release(testContext(t), h))
}

// TestStrictDuringDowngrade breaks the connection on which a downgrade was asked
// for: strict holds go with it, this one too.
func TestStrictDuringDowngrade(t *testing.T) {
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second, Strict: true}, shared.Addr())
	lease := lock(t, c.RWMutex("m"))
	p.DropReplyAfter(isRequest(opMulti))
	wantError(t, lease.Downgrade(testContext(t)), dlock.ErrLost)
	wantError(t, lease.Err(), dlock.ErrLost)
}

// TestInspectDuringDowngrade downgrades a hold after the queue has been listed, and before its
// node is read: it is still the one that holds the lock, can be broken, and nobody else is said to
// have it.
func TestInspectDuringDowngrade(t *testing.T) {
	t.Parallel()
	op := operator(t, shared.Addr())
	for name, ask := range map[string]func(c *dlock.Client, token uint64){
		"inspect": func(c *dlock.Client, token uint64) {
			s, err := c.Inspect(testContext(t), "inspect")
			must(t, err)
			if len(s.Holders) != 1 || s.Holders[0].Token != token || len(s.Waiters) != 1 {
				t.Errorf("token %d holds the lock, and one waits: %+v", token, s)
			}
		},
		"break": func(c *dlock.Client, token uint64) { must(t, c.Break(testContext(t), "break", token)) },
	} {
		lease := lock(t, connect(t, nil, shared.Addr()).RWMutex(name))
		next := start(t, connect(t, nil, shared.Addr()).Mutex(name))
		queued(t, op, name, 2)
		looks, p := proxied(t, nil, shared.Addr())
		var once sync.Once
		p.OnRequest(func(_ int, req []byte) {
			if codeOf(req) == opGet {
				once.Do(func() { must(t, lease.Downgrade(testContext(t))) })
			}
		})
		ask(looks, lease.Token())
		_ = lease.Unlock(testContext(t)) // lost, if it was broken
		unlock(t, next.granted(t))
	}
}
