package zk_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
)

func TestLockAndUnlock(t *testing.T) {
	c := connect(t, nil, shared.Addr())
	op := operator(t, shared.Addr())
	lease := lock(t, c.Mutex("a"))
	first := lease.Token()
	if n := nodes(t, op, "a"); len(n) != 1 {
		t.Fatalf("nodes %v", n)
	}
	unlock(t, lease)
	if n := nodes(t, op, "a"); len(n) != 0 {
		t.Fatalf("nodes %v", n)
	}
	lease = lock(t, c.Mutex("a"))
	if lease.Token() <= first {
		t.Errorf("token %d came after %d", lease.Token(), first)
	}
	other := connect(t, nil, shared.Addr())
	if _, err := other.Mutex("a").TryLock(testContext(t)); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("try: %v", err)
	}
	next := start(t, other.Mutex("a"))
	queued(t, op, "a", 2)
	unlock(t, lease)
	unlock(t, next.granted(t))
}
