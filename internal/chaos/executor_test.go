package chaos

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/faultnet"
)

var holderFaults = flag.Int("holderfaults", 5, "how often the holder of a lock is cut off or stopped, for each backend")

// lockCount is on how many locks the holder is cut off or stopped at once.
const lockCount = 5

// A pair is two executors on one backend that want the same locks: the holder, which the
// faults befall, and the rival, which waits.
type pair struct {
	testing.TB
	on            Subject
	holder, rival *controller
	cut, heal     []func()
	ctx           context.Context
}

func newPair(t testing.TB, s Subject) *pair {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*holderFaults)*2*s.TTL)
	t.Cleanup(cancel)
	p := &pair{TB: t, on: s, ctx: ctx}
	dir := t.TempDir()
	store, err := NewStore(filepath.Join(dir, "store"))
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	holder := Job{Worker: 1, TTL: s.TTL, Dir: dir}
	rival := Job{Worker: 2, TTL: s.TTL, Dir: dir}
	for range lockCount {
		holder.LockURLs = append(holder.LockURLs, p.holderURL())
		rival.LockURLs = append(rival.LockURLs, s.url(s.Target))
	}
	p.holder, p.rival = p.start(holder, 0), p.start(rival, lockCount)
	return p
}

func (s *Subject) url(addr string) string {
	if s.URL == nil {
		return s.Name // opened by Here
	}
	return s.URL(addr)
}

// holderURL returns the URL for the holder's next lock, with a way to the server that can
// be cut.
func (p *pair) holderURL() string {
	n := len(p.cut)
	switch {
	case p.on.Cut != nil:
		p.cut = append(p.cut, func() { p.on.Cut(n) })
		p.heal = append(p.heal, func() { p.on.Heal(n) })
	case p.on.Target != "":
		proxies, err := listen(p.on.Target)
		must(p, err)
		p.Cleanup(func() { must(p, proxies.Close()) })
		p.cut = append(p.cut, func() { proxies.Blackhole(faultnet.BothWays) })
		p.heal = append(p.heal, func() { proxies.Restore(faultnet.BothWays) })
		return p.on.URL(proxies.Addr())
	}
	return p.on.url(p.on.Target)
}

func (p *pair) start(j Job, first int) *controller {
	var open func(int) (*dlock.Client, error)
	if p.on.Here != nil {
		open = func(n int) (*dlock.Client, error) { return p.on.Here(first + n) }
	}
	s, err := startExecutor(j, open)
	must(p, err)
	p.Cleanup(s.close)
	return s
}

// expect gives a command and returns what comes of it.
func (p *pair) expect(s *controller, verb string, n int, kinds ...Kind) (Event, error) {
	since := clock.Now()
	if err := s.command(verb, n); err != nil {
		return Event{}, err
	}
	return s.await(p.ctx, n, since, kinds...)
}

// TestPartition cuts the holder off, again and again, while another process
// waits: the holder knows that the lock is lost before the other has it.
func TestPartition(t *testing.T) {
	for _, name := range chosen(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := subjects[name](t)
			if s.Target == "" && s.Cut == nil {
				t.Log("nothing stands between a process and its files")
				return
			}
			partition(newPair(t, s))
		})
	}
}

func partition(p *pair) {
	var mu sync.Mutex
	var margins []time.Duration
	var left, void atomic.Int64
	left.Store(int64(*holderFaults))
	var all sync.WaitGroup
	for n := range lockCount {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				margin, valid, err := p.cutOff(n)
				switch {
				case err != nil:
					p.Error(err)
					return
				case !valid: // the processes did not run: nothing is reached
					void.Add(1)
					left.Add(1)
				default:
					mu.Lock()
					margins = append(margins, margin)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if len(margins) == 0 {
		p.Fatal("no round was valid")
	}
	slices.Sort(margins)
	late := 0
	for _, m := range margins {
		if m <= 0 {
			late++
		}
	}
	if late > 0 {
		p.Errorf("in %d of %d the holder knew too late, by %v at most", late, len(margins), -margins[0])
	}
	fmt.Printf("%s: partition: lost before the next holder in %d of %d, least margin %v, median %v; %d void\n", p.on.Name, len(margins)-late, len(margins),
		margins[0].Round(time.Microsecond), margins[len(margins)/2].Round(time.Microsecond), void.Load())
	report.partition(p.on.Name, len(margins)-late, len(margins), margins[0])
}

// cutOff cuts the holder of lock n off, and returns how long before the rival had the
// lock the holder knew that it had lost it.
func (p *pair) cutOff(n int) (margin time.Duration, valid bool, err error) {
	began := clock.Now()
	if e, err := p.expect(p.holder, "lock", n, Granted); err != nil || e.Err != "" {
		return 0, false, fmt.Errorf("holder: %v, %v", e, err)
	}
	if err := p.rival.command("lock", n); err != nil {
		return 0, false, err
	}
	p.cut[n]()
	got, err := p.rival.await(p.ctx, n, began, Granted)
	if err != nil || got.Err != "" {
		return 0, false, fmt.Errorf("rival: %v, %v", got, err)
	}
	lost, err := p.holder.await(p.ctx, n, began, Lost)
	if err != nil {
		return 0, false, err
	}
	margin = time.Duration(got.At - lost.At)
	if margin <= 0 { // who did not run says so a moment after it runs again
		backend.Sleep(p.ctx, p.on.TTL/10)
	}
	valid = !p.holder.stalled(began)
	p.heal[n]()
	e, err := p.expect(p.rival, "unlock", n, Unlocked)
	if err != nil || e.Err != "" && e.Err != "lost" {
		return 0, false, fmt.Errorf("rival unlocks: %v, %v", e, err)
	}
	return margin, valid && e.Err == "", nil // nor is anything reached if the rival did not run
}

// TestStoppedHolder stops the holder's process past its lease. When it wakes up
// it knows that the lock is lost, and its write comes too late: the store
// refuses it, every time. A backend without leases lets nobody else in.
func TestStoppedHolder(t *testing.T) {
	for _, name := range chosen(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := subjects[name](t)
			if s.Here != nil {
				t.Log("a process cannot stop a part of itself")
				return
			}
			p := newPair(t, s)
			for done := 0; done < *holderFaults; done += lockCount {
				p.stopHolder()
			}
			report.stopped(s.Name, *holderFaults)
		})
	}
}

// stopHolder is one round: the holder has all locks, is stopped, and runs on
// when the rival has them and has written.
func (p *pair) stopHolder() {
	p.Helper()
	began := clock.Now()
	p.all(p.holder, "lock", Granted, "")
	for n := range lockCount {
		must(p, p.rival.command("lock", n))
	}
	must(p, p.holder.cmd.Process.Signal(syscall.SIGSTOP))
	for !stopped(p.holder.cmd.Process.Pid) && backend.Sleep(p.ctx, time.Millisecond) {
	}
	if p.on.Leased {
		p.awaitAll(p.rival, began, Granted)
		p.rivalDoes("write", Wrote, began)
	} else {
		backend.Sleep(p.ctx, 3*p.on.TTL/2)
	}
	must(p, p.holder.cmd.Process.Signal(syscall.SIGCONT))
	if p.on.Leased {
		p.all(p.holder, "write", Refused, IsLost)
		p.all(p.holder, "unlock", Unlocked, IsLost)
	} else {
		p.all(p.holder, "write", Wrote, "")
		p.all(p.holder, "unlock", Unlocked, "")
		p.awaitAll(p.rival, began, Granted)
		p.rivalDoes("write", Wrote, began)
	}
	p.rivalDoes("unlock", Unlocked, began)
}

// rivalDoes gives the rival a command for every lock. If it did not run for a while,
// its leases may be over, too.
func (p *pair) rivalDoes(verb string, want Kind, began int64) {
	p.Helper()
	for n := range lockCount {
		e, err := p.expect(p.rival, verb, n, Unlocked, Wrote, Refused)
		must(p, err)
		if e.Kind != want || e.Err != "" && !(e.Err == IsLost && p.rival.stalled(began)) {
			p.Fatalf("lock %d: %s: %s %q %s", n, verb, e.Kind, e.Err, e.Text)
		}
	}
}

// all gives a command for every lock, and fails unless this comes of it.
func (p *pair) all(s *controller, verb string, want Kind, class Class) {
	p.Helper()
	for n := range lockCount {
		e, err := p.expect(s, verb, n, Granted, Failed, Unlocked, Wrote, Refused)
		must(p, err)
		if e.Kind != want || e.Err != class {
			p.Fatalf("lock %d: %s: %s %q %s, want %s %q", n, verb, e.Kind, e.Err, e.Text, want, class)
		}
	}
}

// awaitAll waits for what an earlier command for every lock leads to.
func (p *pair) awaitAll(s *controller, since int64, want Kind) {
	p.Helper()
	for n := range lockCount {
		e, err := s.await(p.ctx, n, since, want)
		must(p, err)
		if e.Err != "" {
			p.Fatalf("lock %d: %s %s", n, e.Err, e.Text)
		}
	}
}
