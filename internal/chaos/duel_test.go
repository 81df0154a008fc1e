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
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/faultnet"
)

var duels = flag.Int("duels", 5, "how often the holder of a lock is cut off or stopped, for each backend")

// laneCount is how many duels are fought at once.
const laneCount = 5

// A ring is where duels on one backend are fought: a holder, whom the faults
// befall, and a rival, who waits for the lock.
type ring struct {
	testing.TB
	on            Subject
	holder, rival *Side
	cut, heal     []func()
	ctx           context.Context
}

func newRing(t testing.TB, s Subject) *ring {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*duels)*2*s.TTL)
	t.Cleanup(cancel)
	r := &ring{TB: t, on: s, ctx: ctx}
	dir := t.TempDir()
	store, err := NewStore(filepath.Join(dir, "store"))
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	holder := Job{Worker: 1, TTL: s.TTL, Dir: dir}
	rival := Job{Worker: 2, TTL: s.TTL, Dir: dir}
	for range laneCount {
		holder.Lanes = append(holder.Lanes, r.lane())
		rival.Lanes = append(rival.Lanes, s.url(s.Target))
	}
	r.holder, r.rival = r.side(holder, 0), r.side(rival, laneCount)
	return r
}

func (s *Subject) url(addr string) string {
	if s.URL == nil {
		return s.Name // opened by Here
	}
	return s.URL(addr)
}

// lane prepares the holder's way to the server, and returns its URL.
func (r *ring) lane() string {
	n := len(r.cut)
	switch {
	case r.on.Cut != nil:
		r.cut = append(r.cut, func() { r.on.Cut(n) })
		r.heal = append(r.heal, func() { r.on.Heal(n) })
	case r.on.Target != "":
		proxies, err := listen(r.on.Target)
		must(r, err)
		r.Cleanup(func() { must(r, proxies.Close()) })
		r.cut = append(r.cut, func() { proxies.Blackhole(faultnet.BothWays) })
		r.heal = append(r.heal, func() { proxies.Restore(faultnet.BothWays) })
		return r.on.URL(proxies.Addr())
	}
	return r.on.url(r.on.Target)
}

func (r *ring) side(j Job, first int) *Side {
	var open func(int) (*dlock.Client, error)
	if r.on.Here != nil {
		open = func(lane int) (*dlock.Client, error) { return r.on.Here(first + lane) }
	}
	s, err := newSide(j, open)
	must(r, err)
	r.Cleanup(s.close)
	return s
}

// expect gives an order and returns what comes of it.
func (r *ring) expect(s *Side, verb string, lane int, kinds ...Kind) (Event, error) {
	since := clock.Now()
	if err := s.tell(verb, lane); err != nil {
		return Event{}, err
	}
	return s.await(r.ctx, lane, since, kinds...)
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
			partition(newRing(t, s))
		})
	}
}

func partition(r *ring) {
	var mu sync.Mutex
	var margins []time.Duration
	var left, void atomic.Int64
	left.Store(int64(*duels))
	var all sync.WaitGroup
	for lane := range laneCount {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				margin, valid, err := r.cutOff(lane)
				switch {
				case err != nil:
					r.Error(err)
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
		r.Fatal("no duel was fought")
	}
	slices.Sort(margins)
	late := 0
	for _, m := range margins {
		if m <= 0 {
			late++
		}
	}
	if late > 0 {
		r.Errorf("in %d of %d the holder knew too late, by %v at most", late, len(margins), -margins[0])
	}
	fmt.Printf("%s: partition: lost before the next holder in %d of %d, least margin %v, median %v; %d void\n", r.on.Name, len(margins)-late, len(margins),
		margins[0].Round(time.Microsecond), margins[len(margins)/2].Round(time.Microsecond), void.Load())
	report.partition(r.on.Name, len(margins)-late, len(margins), margins[0])
}

// cutOff fights one duel, and returns how long before the rival had the lock the
// holder knew that it had lost it.
func (r *ring) cutOff(lane int) (margin time.Duration, valid bool, err error) {
	began := clock.Now()
	if e, err := r.expect(r.holder, "lock", lane, Granted); err != nil || e.Err != "" {
		return 0, false, fmt.Errorf("holder: %v, %v", e, err)
	}
	if err := r.rival.tell("lock", lane); err != nil {
		return 0, false, err
	}
	r.cut[lane]()
	got, err := r.rival.await(r.ctx, lane, began, Granted)
	if err != nil || got.Err != "" {
		return 0, false, fmt.Errorf("rival: %v, %v", got, err)
	}
	lost, err := r.holder.await(r.ctx, lane, began, Lost)
	if err != nil {
		return 0, false, err
	}
	margin = time.Duration(got.At - lost.At)
	if margin <= 0 { // who did not run says so a moment after it runs again
		pause(r.ctx, r.on.TTL/10)
	}
	valid = !r.holder.stalled(began)
	r.heal[lane]()
	e, err := r.expect(r.rival, "unlock", lane, Unlocked)
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
			r := newRing(t, s)
			for fought := 0; fought < *duels; fought += laneCount {
				r.stopHolder()
			}
			report.stopped(s.Name, *duels)
		})
	}
}

// stopHolder is one round: the holder has all lanes, is stopped, and runs on
// when the rival has them and has written.
func (r *ring) stopHolder() {
	r.Helper()
	began := clock.Now()
	r.all(r.holder, "lock", Granted, "")
	for lane := range laneCount {
		must(r, r.rival.tell("lock", lane))
	}
	must(r, r.holder.cmd.Process.Signal(syscall.SIGSTOP))
	for !stopped(r.holder.cmd.Process.Pid) && pause(r.ctx, time.Millisecond) {
	}
	if r.on.Leased {
		r.awaitAll(r.rival, began, Granted)
		r.rivalDoes("write", Wrote, began)
	} else {
		pause(r.ctx, 3*r.on.TTL/2)
	}
	must(r, r.holder.cmd.Process.Signal(syscall.SIGCONT))
	if r.on.Leased {
		r.all(r.holder, "write", Refused, IsLost)
		r.all(r.holder, "unlock", Unlocked, IsLost)
	} else {
		r.all(r.holder, "write", Wrote, "")
		r.all(r.holder, "unlock", Unlocked, "")
		r.awaitAll(r.rival, began, Granted)
		r.rivalDoes("write", Wrote, began)
	}
	r.rivalDoes("unlock", Unlocked, began)
}

// rivalDoes gives the rival an order in every lane. If it did not run for a while,
// its leases may be over, too.
func (r *ring) rivalDoes(verb string, want Kind, began int64) {
	r.Helper()
	for lane := range laneCount {
		e, err := r.expect(r.rival, verb, lane, Unlocked, Wrote, Refused)
		must(r, err)
		if e.Kind != want || e.Err != "" && !(e.Err == IsLost && r.rival.stalled(began)) {
			r.Fatalf("lane %d: %s: %s %q %s", lane, verb, e.Kind, e.Err, e.Text)
		}
	}
}

// all gives an order in every lane, and fails unless this comes of it.
func (r *ring) all(s *Side, verb string, want Kind, class Class) {
	r.Helper()
	for lane := range laneCount {
		e, err := r.expect(s, verb, lane, Granted, Failed, Unlocked, Wrote, Refused)
		must(r, err)
		if e.Kind != want || e.Err != class {
			r.Fatalf("lane %d: %s: %s %q %s, want %s %q", lane, verb, e.Kind, e.Err, e.Text, want, class)
		}
	}
}

// awaitAll waits in every lane for what an earlier order leads to.
func (r *ring) awaitAll(s *Side, since int64, want Kind) {
	r.Helper()
	for lane := range laneCount {
		e, err := s.await(r.ctx, lane, since, want)
		must(r, err)
		if e.Err != "" {
			r.Fatalf("lane %d: %s %s", lane, e.Err, e.Text)
		}
	}
}
