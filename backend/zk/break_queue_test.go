package zk_test

import (
	"context"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend/zk"
)

// TestBreakOfALongQueue takes a lock away for which many wait, and reads none of them.
func TestBreakOfALongQueue(t *testing.T) {
	const waiters = 500
	op := operator(t, shared.Addr())
	o := &zk.Options{Root: rootOf(t), SessionTimeout: time.Minute, Standalone: true}
	l := lock(t, connect(t, o, shared.Addr()).Mutex("m"))
	dir := o.Root + "/m"
	first := nodes(t, op, "m")
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range waiters / 50 {
				if _, err := op.Create(dir+"/"+first[0][:len(first[0])-10], nil, gozk.FlagEphemeral|gozk.FlagSequence, gozk.WorldACL(gozk.PermAll)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	c, p := proxied(t, o, shared.Addr())
	must(t, c.Ping(testContext(t)))
	tp := record(p)
	must(t, c.Break(testContext(t), "m", l.Token()))
	if n := tp.count(opGet); n > 2 { // the holder, and the placeholder
		t.Errorf("%d nodes were read", n)
	}
	_ = l.Unlock(context.Background())
}
