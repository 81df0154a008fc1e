package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// limit is how long one property may take before it dumps what it knows.
const limit = 120 * time.Second

// A scenario is one property under test: its limit, its names, its clients.
type scenario struct {
	testing.TB
	*Harness
	ctx   context.Context
	limit time.Duration
	name  string // a lock name of its own
	log   *eventLog

	mu    sync.Mutex
	peers []*Peer
	waits map[string]int // how many calls were told to wait, by name
	inapt string         // why the property is not applicable; empty: it is
}

var scenarioCount atomic.Int64

// newScenario prepares t for one property. Every client that it opens is closed
// at its end.
func newScenario(t testing.TB, h *Harness, limit time.Duration) *scenario {
	stallTime.run()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	s := &scenario{
		TB: t, Harness: h, ctx: ctx, limit: limit,
		name:  fmt.Sprintf("%s#%d", t.Name(), scenarioCount.Add(1)),
		log:   &eventLog{start: time.Now()},
		waits: make(map[string]int),
	}
	dumped := make(chan struct{})
	alarm := time.AfterFunc(limit, func() { defer close(dumped); s.dump(limit) })
	t.Cleanup(func() {
		if !alarm.Stop() {
			<-dumped // while the test can still be told
		}
		if t.Failed() {
			s.tell()
		}
		cancel()
		s.closeAll()
	})
	return s
}

// dump prints what every goroutine is doing when a property takes too long.
func (s *scenario) dump(limit time.Duration) {
	buf := make([]byte, 1<<20)
	s.Errorf("over the limit of %v\n%s", limit, buf[:runtime.Stack(buf, true)])
}

func (s *scenario) closeAll() {
	s.mu.Lock()
	peers := s.peers
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, p := range peers {
		if err := p.Close(ctx); err != nil {
			s.Errorf("close: %v", err)
		}
		if p.Closed != nil {
			p.Closed()
		}
	}
}

// open returns a client with the harness's TTL.
func (s *scenario) open() *Peer { return s.openWith(dlock.Options{}) }

func (s *scenario) openWith(o dlock.Options) *Peer {
	s.Helper()
	if o.TTL == 0 {
		o.TTL = s.TTL
	}
	if o.Hooks.Waiting == nil {
		o.Hooks.Waiting = s.noteWait
	}
	s.log.watch(&o)
	p := s.Open(s.TB, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers = append(s.peers, p)
	return p
}

func (s *scenario) noteWait(_ context.Context, e dlock.WaitingEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[e.Lock]++
}

func (s *scenario) waitsOf(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits[name]
}

func (s *scenario) opens(n int) []*Peer {
	s.Helper()
	peers := make([]*Peer, n)
	for i := range peers {
		peers[i] = s.open()
	}
	return peers
}

// sub returns a name of its own that belongs to the scenario.
func (s *scenario) sub(suffix any) string { return fmt.Sprintf("%s/%v", s.name, suffix) }

// locked takes l and fails the test if it cannot.
func (s *scenario) locked(l dlock.Locker) *dlock.Lease {
	s.Helper()
	lease, err := l.Lock(s.ctx)
	s.ok(err)
	s.log.keep(lease)
	return lease
}

// patiently takes l, as often as the server is too busy with others to answer.
func (s *scenario) patiently(l dlock.Locker) (*dlock.Lease, error) {
	for {
		lease, err := l.Lock(s.ctx)
		if !errors.Is(err, dlock.ErrUnavailable) || s.ctx.Err() != nil {
			return lease, err
		}
	}
}

// rlocked is locked for a reader.
func (s *scenario) rlocked(l dlock.RWLocker) *dlock.Lease {
	s.Helper()
	lease, err := l.RLock(s.ctx)
	s.ok(err)
	s.log.keep(lease)
	return lease
}

// unlock gives lease back and fails the test if it cannot.
func (s *scenario) unlock(lease *dlock.Lease) {
	s.Helper()
	s.ok(lease.Unlock(s.ctx))
}

// free checks that l can be had at once, and gives it back.
func (s *scenario) free(l dlock.Locker) {
	s.Helper()
	lease, err := l.TryLock(s.ctx)
	s.ok(err)
	s.unlock(lease)
}

// held checks that l is held by another.
func (s *scenario) held(l dlock.Locker) {
	s.Helper()
	lease, err := l.TryLock(s.ctx)
	if err == nil {
		s.unlock(lease)
	}
	s.is(err, dlock.ErrHeld)
}

// freed waits until l can be had, and gives it back.
func (s *scenario) freed(l dlock.Locker) {
	s.Helper()
	s.unlock(s.locked(l))
}

func (s *scenario) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

// is checks that err is of every kind given, and an *Error.
func (s *scenario) is(err error, kinds ...error) {
	s.Helper()
	for _, k := range kinds {
		if !errors.Is(err, k) {
			s.Fatalf("error is %v, want one that is %v", err, k)
		}
	}
	var e *dlock.Error
	if !errors.As(err, &e) {
		s.Fatalf("error %v is not an *Error", err)
	}
}

// not checks that err is of none of the kinds.
func (s *scenario) not(err error, kinds ...error) {
	s.Helper()
	for _, k := range kinds {
		if errors.Is(err, k) {
			s.Fatalf("error %v must not be %v", err, k)
		}
	}
}

func (s *scenario) must(ok bool, format string, args ...any) {
	s.Helper()
	if !ok {
		s.Fatalf(format, args...)
	}
}

// eventually waits until cond holds.
func (s *scenario) eventually(what string, cond func() bool) {
	s.Helper()
	for !cond() {
		select {
		case <-s.ctx.Done():
			s.Fatalf("never: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// done waits for ch.
func (s *scenario) done(what string, ch <-chan struct{}) {
	s.Helper()
	select {
	case <-ch:
	case <-s.ctx.Done():
		s.Fatalf("never: %s", what)
	}
}

// lost waits until lease ends, and checks that it is lost.
func (s *scenario) lost(lease *dlock.Lease) {
	s.Helper()
	s.done("lease lost", lease.Done())
	s.is(lease.Err(), dlock.ErrLost)
}

// alive checks that lease lasts.
func (s *scenario) alive(lease *dlock.Lease) {
	s.Helper()
	if err := lease.Err(); err != nil {
		s.Fatalf("lease ended: %v", err)
	}
}

// An attempt is a Lock call under way in a goroutine of its own.
type attempt struct {
	s      *scenario
	ready  chan struct{}
	lease  *dlock.Lease
	err    error
	cancel context.CancelCauseFunc
}

// start begins a Lock call on l.
func (s *scenario) start(l dlock.Locker) *attempt {
	return s.startCtx(s.ctx, l)
}

func (s *scenario) startCtx(ctx context.Context, l dlock.Locker) *attempt {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &attempt{s: s, ready: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(a.ready)
		if a.lease, a.err = l.Lock(ctx); a.err == nil {
			s.log.keep(a.lease)
		}
	}()
	return a
}

// granted waits for the call to succeed.
func (a *attempt) granted() *dlock.Lease {
	a.s.Helper()
	a.s.done("granted", a.ready)
	a.s.ok(a.err)
	return a.lease
}

// failed waits for the call to fail, and returns the error.
func (a *attempt) failed() error {
	a.s.Helper()
	a.s.done("failed", a.ready)
	if a.err == nil {
		a.s.Fatal("the call succeeded, want an error")
	}
	return a.err
}

// first returns a function that waits for the next of the calls to be granted,
// in whatever order that is.
func (s *scenario) first(calls []*attempt) func() *dlock.Lease {
	ready := make(chan *attempt, len(calls))
	for _, a := range calls {
		go func() {
			<-a.ready
			ready <- a
		}()
	}
	return func() *dlock.Lease {
		s.Helper()
		select {
		case a := <-ready:
			return a.granted()
		case <-s.ctx.Done():
			s.Fatal("never: any of the calls granted")
			return nil
		}
	}
}

// waits fails the test if the call has returned: it must wait, or else why.
func (a *attempt) waits(why string) {
	a.s.Helper()
	if !a.waiting() {
		a.s.Fatalf("%s: the call returned, error %v", why, a.err)
	}
}

// waiting reports whether the call has not returned.
func (a *attempt) waiting() bool {
	return !isClosed(a.ready)
}

// queue starts a Lock call on l, whose name is name, and waits until its client
// has told that it waits and the server knows of n that do.
func (s *scenario) queue(l dlock.Locker, name string, n int) *attempt {
	s.Helper()
	before := s.waitsOf(name)
	a := s.start(l)
	s.eventually(fmt.Sprintf("a call for %q is told to wait", name), func() bool {
		a.waits("it should wait")
		return s.waitsOf(name) > before
	})
	s.queued(name, n)
	return a
}

// queued waits until the server knows of n requests for name that wait.
func (s *scenario) queued(name string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d waiting for %q", n, name), func() bool { return s.Waiting(s.TB, name) == n })
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (s *scenario) ops() int64 {
	if s.Ops == nil {
		return 0
	}
	return s.Ops()
}

// pass lets d go by: there is nothing to wait for when something must not
// happen.
func (s *scenario) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		s.Fatal("over the limit")
	}
}

// within waits for ch, for d of the time in which this process runs.
func (s *scenario) within(d time.Duration, what string, ch <-chan struct{}) {
	s.Helper()
	s.soon(d, what, func() bool { return isClosed(ch) })
}

// soon waits until cond holds, for d of the time in which this process runs.
func (s *scenario) soon(d time.Duration, what string, cond func() bool) {
	s.Helper()
	for start := time.Now(); !cond(); {
		select {
		case <-s.ctx.Done():
			s.Fatalf("never: %s", what)
		case <-time.After(time.Millisecond):
		}
		if passed := time.Since(start) - stallTime.stalled(start); passed > d && !cond() {
			s.Fatalf("not within %v: %s", d, what)
		}
	}
}

// na reports whether the property is not applicable, and notes why.
func (s *scenario) na(is bool, why string) bool {
	s.Helper()
	if is {
		s.Logf("n/a: %s", why)
		s.inapt = why
	}
	return is
}

// unable is na for what the harness has no way to do.
func (s *scenario) unable(is bool, field string) bool {
	s.Helper()
	return s.na(is, "the harness has no "+field)
}

// needs skips the property if the backend lacks f.
func (s *scenario) needs(f Feature) {
	s.Helper()
	if why, lacks := s.Lacks[f]; lacks {
		s.Skip(string(f) + ": " + why)
	}
}

// each runs f n times at once and waits for all.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// stacks returns what every goroutine is doing.
func stacks() []string {
	buf := make([]byte, 4<<20)
	return strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
}

// ours are the stacks of this library's goroutines, and of those of the backend
// under test, whose package is home.
func ours(all []string, home string) (ours []string) {
	for _, g := range all {
		if (strings.Contains(g, "dlock-go/dlock") || strings.Contains(g, home)) && !strings.Contains(g, "conformance.") &&
			!strings.Contains(g, "internal/server.") && !strings.Contains(g, "internal/faultnet.") {
			ours = append(ours, g)
		}
	}
	return ours
}

// identity returns a client's part of an ID, as package dlock makes it.
func identity() string { return strings.ToLower(rand.Text()) }
