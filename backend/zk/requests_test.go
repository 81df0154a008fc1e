package zk_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/faultnet"
)

// The codes of requests.
const (
	opDelete    = 2
	opExists    = 3
	opGet       = 4
	opChildren  = 12
	opMulti     = 14
	opContainer = 19
	opAuth      = 100
)

// isRequest returns a function that recognises a request by its code.
func isRequest(code uint32) func([]byte) bool {
	return func(req []byte) bool { return codeOf(req) == code }
}

func codeOf(req []byte) uint32 { return binary.BigEndian.Uint32(req[8:]) }

// A tape records the codes of requests.
type tape struct {
	proxy   *faultnet.Proxy
	mu      sync.Mutex
	codes   []uint32
	watched int
}

func record(p *faultnet.Proxy) *tape {
	tp := &tape{proxy: p}
	p.OnRequest(func(_ int, req []byte) {
		tp.mu.Lock()
		defer tp.mu.Unlock()
		tp.codes = append(tp.codes, codeOf(req))
		if c := codeOf(req); (c == opGet || c == opExists) && req[len(req)-1] == 1 {
			tp.watched++
		}
	})
	return tp
}

// want checks what has been sent since the last call.
func (tp *tape) want(t testing.TB, what string, codes ...uint32) {
	t.Helper()
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if fmt.Sprint(tp.codes) != fmt.Sprint(codes) {
		t.Errorf("%s: requests %v, want %v", what, tp.codes, codes)
	}
	tp.codes = nil
}

// sent returns a condition: n requests have been sent and answered.
func (tp *tape) sent(n int) func() bool {
	return func() bool { return tp.all() == n && tp.proxy.Stats().Owed == 0 }
}

func (tp *tape) all() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return len(tp.codes)
}

// watches is how many nodes the server was asked to watch.
func (tp *tape) watches() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.watched
}

func (tp *tape) count(code uint32) (n int) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, c := range tp.codes {
		if c == code {
			n++
		}
	}
	return n
}

func TestRequests(t *testing.T) {
	a, pa := proxied(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	b, pb := proxied(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	unlock(t, lock(t, a.Mutex("m"))) // makes the node of the lock
	ta, tb := record(pa), record(pb)

	lease := lock(t, a.Mutex("m"))
	ta.want(t, "free Lock", opMulti)
	next := start(t, b.Mutex("m"))
	eventually(t, "parked", tb.sent(3))
	tb.want(t, "Lock before it parks", opMulti, opChildren, opGet)
	unlock(t, lease)
	ta.want(t, "Unlock", opDelete)
	lease = next.granted(t)
	tb.want(t, "hand-over by who was alone")

	third := connect(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	op := operator(t, shared.Addr())
	second := start(t, third.Mutex("m"))
	queued(t, op, "m", 2)
	last := start(t, a.Mutex("m"))
	eventually(t, "parked", ta.sent(4))
	ta.want(t, "Lock behind two", opMulti, opChildren, opGet, opExists)
	unlock(t, lease)
	tb.want(t, "Unlock after a wait", opMulti)
	unlock(t, second.granted(t))
	unlock(t, last.granted(t))
	ta.want(t, "hand-over past two, and Unlock", opMulti)
	lease = lock(t, b.Mutex("m"))
	tb.want(t, "free Lock", opMulti)

	held(t, a.Mutex("m"))
	ta.want(t, "TryLock of a held lock", opChildren)
	unlock(t, lease)
	tb.want(t, "Unlock", opDelete)
	try(t, a.Mutex("m"))
	ta.want(t, "TryLock of a free lock and Unlock", opChildren, opMulti, opDelete)
}

func TestRequestsOfReaders(t *testing.T) {
	a, pa := proxied(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	b, pb := proxied(t, &zk.Options{SessionTimeout: time.Minute}, shared.Addr())
	unlock(t, lock(t, a.RWMutex("m")))
	ta, tb := record(pa), record(pb)

	one := lock(t, a.RWMutex("m").RLocker())
	ta.want(t, "free RLock", opMulti)
	two := lock(t, b.RWMutex("m").RLocker())
	tb.want(t, "RLock beside a reader", opMulti, opChildren)
	unlock(t, one)
	ta.want(t, "Unlock", opDelete)
	writer := start(t, a.RWMutex("m"))
	eventually(t, "parked", ta.sent(3))
	ta.want(t, "Lock behind a reader", opMulti, opChildren, opGet)
	unlock(t, two)
	tb.want(t, "Unlock", opDelete)
	lease := writer.granted(t)
	ta.want(t, "hand-over to a writer")

	reader := start(t, b.RWMutex("m").RLocker())
	eventually(t, "parked", tb.sent(3))
	tb.want(t, "RLock behind a writer", opMulti, opChildren, opGet)
	must(t, lease.Downgrade(testContext(t)))
	ta.want(t, "Downgrade", opMulti)
	inside := reader.granted(t)
	tb.want(t, "hand-over by a downgrade", opChildren)
	if inside.Token() <= two.Token() {
		t.Errorf("token %d came after %d", inside.Token(), two.Token())
	}
	unlock(t, lease)
	unlock(t, inside)
}

func held(t testing.TB, l dlock.Locker) {
	t.Helper()
	lease, err := l.TryLock(testContext(t))
	if err == nil {
		unlock(t, lease)
	}
	wantError(t, err, dlock.ErrHeld)
}

func try(t testing.TB, l dlock.Locker) {
	t.Helper()
	lease, err := l.TryLock(testContext(t))
	must(t, err)
	unlock(t, lease)
}

// TestHoldsAreWatchedTogether has a server be slow to say that it watches.
func TestHoldsAreWatchedTogether(t *testing.T) {
	const n, together = 20, 8
	c, p := proxied(t, &zk.Options{SessionTimeout: 10 * time.Second}, shared.Addr())
	var leases []*dlock.Lease
	for i := range n { // long before the first renewal
		leases = append(leases, lock(t, c.Mutex(fmt.Sprint(i))))
	}
	var asked atomic.Int64
	p.OnRequest(func(_ int, req []byte) {
		if codeOf(req) == opChildren && asked.Add(1) == 1 {
			p.Blackhole(faultnet.ToClient)
		}
	})
	eventually(t, "several holds are to be watched", func() bool { return asked.Load() >= together })
	if got := asked.Load(); got != together {
		t.Errorf("%d requests are under way", got)
	}
	p.Restore(faultnet.ToClient)
	eventually(t, "every hold is watched", func() bool { return asked.Load() == n })
	for _, l := range leases {
		unlock(t, l)
	}
}

// TestRequestsOfIdleHolds counts what many holds cost that are only kept: each a
// watch once, at its first renewal, and then all together what one would.
func TestRequestsOfIdleHolds(t *testing.T) {
	t.Parallel()
	const n, session = 200, 6 * time.Second
	c, p := proxied(t, &zk.Options{SessionTimeout: session}, shared.Addr())
	tp := record(p)
	var leases []*dlock.Lease
	for i := range n {
		leases = append(leases, lock(t, c.Mutex(fmt.Sprint(i))))
	}
	eventually(t, "every hold is watched", func() bool {
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("with %d of %d watched: %v", tp.count(opChildren), n, err)
			}
		}
		return tp.count(opChildren) >= n
	})
	idle, since := tp.all(), time.Now()
	time.Sleep(session)
	most := int(time.Since(since)/(session/15)) + 2 // renewals and pings
	if got := tp.all() - idle; got == 0 || got > most {
		t.Errorf("%d idle holds sent %d requests in %v", n, got, time.Since(since))
	}
	for _, l := range leases {
		unlock(t, l)
	}
}
