package zk_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend/zk"
)

// TestWanted tells a holder of another client that waits: at once when it has been
// alone with the lock for some time, else from the first renewal on.
func TestWanted(t *testing.T) {
	op := operator(t, shared.Addr())
	for name, session := range map[string]time.Duration{"fast path": time.Minute, "renewed": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			a, p := proxied(t, &zk.Options{Root: rootOf(t), SessionTimeout: session}, shared.Addr())
			if name == "fast path" {
				repeat(t, a.Mutex("m"), fastPathHolds+1, 0)
			}
			tp := record(p)
			lease := lock(t, a.Mutex("m"))
			if name == "renewed" {
				eventually(t, "the first renewal", func() bool { return tp.count(opChildren) == 1 })
			}
			select {
			case <-lease.Wanted():
				t.Error("nobody waits")
			default:
			}
			root := rootOf(t)
			next := start(t, connect(t, &zk.Options{Root: root}, shared.Addr()).Mutex("m"))
			receive(t, "told", lease.Wanted())
			unlock(t, lease)
			unlock(t, next.granted(t))
			queued(t, op, "m", 0)
		})
	}
}

// TestEndOfAWantedHold removes the node of a hold that somebody waits for.
func TestEndOfAWantedHold(t *testing.T) {
	op := operator(t, shared.Addr())
	a := connect(t, &zk.Options{SessionTimeout: 3 * time.Second}, shared.Addr())
	lease := lock(t, a.Mutex("m"))
	own := nodes(t, op, "m")[0]
	next := start(t, connect(t, nil, shared.Addr()).Mutex("m"))
	receive(t, "told", lease.Wanted())
	must(t, op.Delete(rootOf(t)+"/m/"+own, -1))
	receive(t, "lost", lease.Done())
	unlock(t, next.granted(t))
}
