package zk_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// wantBroken checks the error of a hold that Break has ended.
func wantBroken(t testing.TB, err error) {
	t.Helper()
	wantError(t, err, dlock.ErrLost, dlock.ErrBroken)
}

// TestBreakIsTold breaks holds: an Unlock, a Downgrade, a renewal and an event each tell
// the holder that it was Break. A node that was deleted by hand is no Break.
func TestBreakIsTold(t *testing.T) {
	t.Parallel()
	op, other := operator(t, shared.Addr()), connect(t, nil, shared.Addr())
	slow := connect(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	for name, end := range map[string]func(*dlock.Lease) error{
		"unlocked":   func(l *dlock.Lease) error { return l.Unlock(testContext(t)) },
		"downgraded": func(l *dlock.Lease) error { return l.Downgrade(testContext(t)) },
	} {
		lease := lock(t, slow.RWMutex(name))
		must(t, other.Break(testContext(t), name, lease.Token()))
		wantBroken(t, end(lease))
	}

	c, p := proxied(t, &zk.Options{SessionTimeout: 3 * time.Second}, shared.Addr())
	tp := record(p)
	watched, reader, removed := lock(t, c.Mutex("watched")), lock(t, c.RWMutex("reader")), lock(t, c.Mutex("removed"))
	must(t, reader.Downgrade(testContext(t)))
	eventually(t, "the holds are watched", func() bool { return tp.count(opChildren) == 2 && tp.watches() > 0 })
	renewed := lock(t, c.Mutex("renewed"))
	for name, l := range map[string]*dlock.Lease{"watched": watched, "reader": reader, "renewed": renewed} {
		must(t, other.Break(testContext(t), name, l.Token()))
	}
	for _, n := range nodes(t, op, "removed") {
		must(t, op.Delete(rootOf(t)+"/removed/"+n, -1))
	}
	for _, l := range []*dlock.Lease{watched, reader, renewed, removed} {
		receive(t, "lost", l.Done())
	}
	wantBroken(t, watched.Err())
	wantBroken(t, reader.Err())
	wantBroken(t, renewed.Err())
	if wantError(t, removed.Err(), dlock.ErrLost); errors.Is(removed.Err(), dlock.ErrBroken) {
		t.Errorf("nobody has broken the hold: %v", removed.Err())
	}
}

// TestBreakIsToldLate has a holder that is cut off hear of a Break when it is back.
func TestBreakIsToldLate(t *testing.T) {
	t.Parallel()
	other := connect(t, nil, shared.Addr())
	c, p := proxied(t, &zk.Options{SessionTimeout: 20 * time.Second}, shared.Addr())
	tp := record(p)
	lease := lock(t, c.Mutex("m"))
	eventually(t, "the hold is watched", func() bool { return tp.count(opChildren) == 1 && p.Stats().Owed == 0 })
	p.Blackhole(faultnet.ToClient)
	must(t, other.Break(testContext(t), "m", lease.Token()))
	p.Reset()
	p.Restore(faultnet.ToClient)
	receive(t, "lost", lease.Done())
	wantBroken(t, lease.Err())
}

// TestBreakAtOnce breaks many holds at the same time: each holder is told.
func TestBreakAtOnce(t *testing.T) {
	t.Parallel()
	const n = 20
	holder, a, b := connect(t, nil, shared.Addr()), connect(t, nil, shared.Addr()), connect(t, nil, shared.Addr())
	leases := make([]*dlock.Lease, n)
	for i := range leases {
		leases[i] = lock(t, holder.Mutex(fmt.Sprint(i)))
	}
	var all sync.WaitGroup
	for i, l := range leases {
		all.Go(func() {
			if err := []*dlock.Client{a, b}[i%2].Break(testContext(t), fmt.Sprint(i), l.Token()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, l := range leases {
		receive(t, "lost", l.Done())
		wantBroken(t, l.Err())
	}
}

// TestBrokenAreForgotten breaks so many holds that what is written of them has to end.
func TestBrokenAreForgotten(t *testing.T) {
	t.Parallel()
	const most = 128
	op, c := operator(t, shared.Addr()), connect(t, nil, shared.Addr())
	_, err := op.Create(rootOf(t), nil, gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	_, err = op.Create(rootOf(t)+"/.dlock", []byte("what others have written"), gozk.FlagPersistent, gozk.WorldACL(gozk.PermAll))
	must(t, err)
	for range most + 10 {
		lease := lock(t, c.Mutex("m"))
		must(t, c.Break(testContext(t), "m", lease.Token()))
		wantBroken(t, lease.Unlock(testContext(t)))
	}
	data, _, err := op.Get(rootOf(t) + "/.dlock")
	must(t, err)
	if n := len(strings.Fields(string(data))); n != most {
		t.Errorf("%d holds are named", n)
	}
}

// TestBreakWithoutAMark breaks a hold where nobody may write who did it.
func TestBreakWithoutAMark(t *testing.T) {
	t.Parallel()
	op, c := operator(t, shared.Addr()), connect(t, nil, shared.Addr())
	lease := lock(t, c.Mutex("m"))
	must(t, op.Delete(rootOf(t)+"/.dlock", -1))
	_, err := op.Create(rootOf(t)+"/.dlock", nil, gozk.FlagPersistent, gozk.DigestACL(gozk.PermAll, "user", "password"))
	must(t, err)
	must(t, c.Break(testContext(t), "m", lease.Token()))
	if err := lease.Unlock(testContext(t)); errors.Is(err, dlock.ErrBroken) {
		t.Errorf("who has written that? %v", err)
	} else {
		wantError(t, err, dlock.ErrLost)
	}
}
