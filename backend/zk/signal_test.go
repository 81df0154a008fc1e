package zk_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
)

// queueUp queues n clients for the lock m, the first of whom has it.
func queueUp(t *testing.T, n int) (holder *dlock.Lease, waiters []*call) {
	t.Helper()
	op := operator(t, shared.Addr())
	long := &zk.Options{SessionTimeout: time.Minute}
	holder = lock(t, connect(t, long, shared.Addr()).Mutex("m"))
	for i := 1; i < n; i++ {
		waiters = append(waiters, start(t, connect(t, long, shared.Addr()).Mutex("m")))
		queued(t, op, "m", i+1)
	}
	return holder, waiters
}

// TestNobodyIsLetInByAWrite writes to every node of a queue, as an operator may who
// leaves a note there, and takes one of those who wait away right after that.
func TestNobodyIsLetInByAWrite(t *testing.T) {
	op := operator(t, shared.Addr())
	holder, waiters := queueUp(t, 4)
	write := func() {
		for _, n := range nodes(t, op, "m") {
			_, err := op.Set(rootOf(t)+"/m/"+n, []byte("0 a note"), -1)
			must(t, err)
		}
		pass(100 * time.Millisecond)
		if !waiters[0].waiting() || !waiters[2].waiting() || holder.Err() != nil {
			t.Fatalf("somebody was let in beside the holder, or it lost the lock: %v", holder.Err())
		}
	}
	write()
	waiters[1].cancel()
	receive(t, "returned", waiters[1].done)
	queued(t, op, "m", 3)
	write()
	unlock(t, holder)
	unlock(t, waiters[0].granted(t))
	unlock(t, waiters[2].granted(t))
	queued(t, op, "m", 0)
}

// TestDowngradeLetsNoWriterIn has writers wait right behind a downgrade.
func TestDowngradeLetsNoWriterIn(t *testing.T) {
	op := operator(t, shared.Addr())
	holder, waiters := queueUp(t, 3)
	must(t, holder.Downgrade(testContext(t)))
	pass(100 * time.Millisecond)
	if !waiters[0].waiting() || !waiters[1].waiting() {
		t.Fatal("a writer was let in beside a reader")
	}
	unlock(t, holder)
	unlock(t, waiters[0].granted(t))
	unlock(t, waiters[1].granted(t))
	queued(t, op, "m", 0)
}

// TestWhoLeavesTakesWatchesAlong has those go who wait in the middle of a queue: the
// server keeps no watch of a node that is not there.
func TestWhoLeavesTakesWatchesAlong(t *testing.T) {
	op := operator(t, shared.Addr())
	holder, waiters := queueUp(t, 3)
	long := &zk.Options{SessionTimeout: time.Minute}
	middle, behind := connect(t, long, shared.Addr()).Mutex("m"), connect(t, long, shared.Addr()).Mutex("m")
	for range 5 {
		leaves := start(t, middle)
		queued(t, op, "m", 4)
		before := nodes(t, op, "m")
		stays := start(t, behind)
		queued(t, op, "m", 5)
		eventually(t, "the signal of each but the holder's is watched", func() bool {
			marks := 0
			for _, n := range watched(t, rootOf(t)+"/m/") {
				if name, ok := strings.CutSuffix(n, "-free"); ok && slices.Contains(before, name) {
					marks++
				}
			}
			return marks == len(before)-1
		})
		leaves.cancel()
		receive(t, "returned", leaves.done)
		queued(t, op, "m", 4)
		eventually(t, "what is watched is there", func() bool {
			there := nodes(t, op, "m")
			return !slices.ContainsFunc(watched(t, rootOf(t)+"/m/"), func(n string) bool {
				return !slices.Contains(there, strings.TrimSuffix(n, "-free"))
			})
		})
		stays.cancel()
		receive(t, "returned", stays.done)
		queued(t, op, "m", 3)
	}
	unlock(t, holder)
	unlock(t, waiters[0].granted(t))
	unlock(t, waiters[1].granted(t))
}

// TestEndsTakeWatchesAlong has a writer that has waited become a reader, or Break take its
// lock away: the server keeps no watch of a signal that never comes.
func TestEndsTakeWatchesAlong(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *dlock.Lease) error{
		"downgrade": func(t *testing.T, l *dlock.Lease) error { return l.Downgrade(testContext(t)) },
		"break": func(t *testing.T, l *dlock.Lease) error {
			return connect(t, nil, shared.Addr()).Break(testContext(t), "m", l.Token())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := operator(t, shared.Addr())
			holder, waiters := queueUp(t, 3)
			signals := func() int {
				return len(slices.DeleteFunc(watched(t, rootOf(t)+"/m/"), func(n string) bool { return !strings.HasSuffix(n, "-free") }))
			}
			eventually(t, "the signal of the next is watched", func() bool { return signals() == 1 })
			unlock(t, holder)
			lease := waiters[0].granted(t)
			must(t, end(t, lease))
			eventually(t, "no signal is watched", func() bool { return signals() == 0 })
			if err := lease.Unlock(testContext(t)); name == "downgrade" {
				must(t, err)
			}
			unlock(t, waiters[1].granted(t))
			queued(t, op, "m", 0)
		})
	}
}

// watched lists the paths that begin with prefix, without it, of which the server
// keeps a watch.
func watched(t *testing.T, prefix string) (paths []string) {
	for _, line := range strings.Split(command(t, shared.Addr(), "wchp"), "\n") {
		if name, ok := strings.CutPrefix(line, prefix); ok {
			paths = append(paths, name)
		}
	}
	return paths
}

// TestSignalOfDeletedNode has the node go that is about to be watched: no signal of it
// is to come any more, and none is watched.
func TestSignalOfDeletedNode(t *testing.T) {
	op := operator(t, shared.Addr())
	holder, waiters := queueUp(t, 2)
	c, p := proxied(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	root := rootOf(t)
	var gone, signals atomic.Int64
	p.OnRequest(func(_ int, req []byte) {
		switch codeOf(req) {
		case opGet:
			path := string(req[16 : 16+binary.BigEndian.Uint32(req[12:])])
			if strings.HasPrefix(path, root+"/m/") && gone.Add(1) == 1 {
				_ = op.Delete(path, -1)
			}
		case opExists:
			signals.Add(1)
		}
	})
	last := start(t, c.Mutex("m"))
	eventually(t, "the next node is watched", func() bool { return gone.Load() > 1 })
	if n := signals.Load(); n != 0 {
		t.Errorf("%d signals are watched of a node that had gone", n)
	}
	unlock(t, holder)
	unlock(t, last.granted(t))
	wantError(t, waiters[0].granted(t).Unlock(testContext(t)), dlock.ErrLost)
}
