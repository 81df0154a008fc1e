package simulation

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

var (
	duration  = flag.Duration("simulation.duration", 0, "how long TestSimulate looks for failures; 0: not at all")
	seed      = flag.Uint64("simulation.seed", rand.Uint64N(1<<32), "the first seed of TestSimulate; one that is drawn if it is left out")
	jobs      = flag.Int("simulation.jobs", 2, "how many processes run plans")
	on        = flag.String("simulation.backend", "", "redis, sentinel, cluster, memory or quorum; empty: any")
	only      = flag.String("simulation.faults", "", "which kinds of fault plans have, as a regular expression; empty: all")
	shrinking = flag.Duration("simulation.shrink", time.Minute, "for how long a plan that fails is made smaller")
	most      = flag.Int("simulation.failures", 3, "after how many failures TestSimulate ends")
	repeat    = flag.Uint64("simulation.repeat", 1, "how often TestSimulate runs each seed: the scheduler decides a little too")
	profile   = flag.String("simulation.cpuprofile", "", "where one process that runs plans writes what it spends its time on")
	trace     = flag.Bool("simulation.trace", false, "print what servers are asked and say, too")
	verbose   = flag.Bool("simulation.verbose", false, "say what became of each run")
)

func init() {
	logging.Disable() // the client library says on stderr that it cannot dial
	flag.DurationVar(&patience, "simulation.patience", patience, "how long one plan may take of real time")
}

// TestWorker is what runs the plans, in processes of its own.
func TestWorker(t *testing.T) {
	if os.Getenv("SIMULATION_WORKER") == "" {
		return
	}
	debug.SetGCPercent(-1) // Run collects
	debug.SetMemoryLimit(256 << 20)
	defer deepStacks()()
	plans := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		p := new(Plan)
		if plans.Decode(p) != nil {
			return
		}
		before := used(t)
		r := Run(t, p)
		r.CPU = used(t) - before
		if len(r.Violations) == 0 {
			r.History = nil
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s%s\n", mark, text)
	}
}

// used is what this process has used of processors.
func used(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// deepStacks has goroutines begin with a stack that need not grow: it is as large as stacks
// are on average when memory is collected, and for most plans are over then.
func deepStacks() (end func()) {
	over := make(chan struct{})
	for range 200 {
		go func() { deep(over) }()
	}
	return func() { close(over) }
}

// deep uses some of its stack until over.
func deep(over chan struct{}) {
	var used [6 << 10]byte
	<-over
	runtime.KeepAlive(&used)
}

// TestSeeds runs seeds that are known to be in order.
func TestSeeds(t *testing.T) {
	search(t, 1, 100, 25*time.Second)
}

// TestSimulate looks for failures for as long as it is told to.
func TestSimulate(t *testing.T) {
	if *duration == 0 {
		return
	}
	t.Logf("-simulation.seed=%d", *seed)
	search(t, *seed, 0, *duration)
}

// search runs seeds from first on, in two processes, until there have been n of them or
// the time is over.
func search(t *testing.T, first uint64, n int, limit time.Duration) {
	binary := soundWorker(t)
	s := &tally{coverage: make(map[string]int), first: first, most: uint64(n), end: time.Now().Add(limit)}
	if n == 0 {
		s.most = 1<<64 - 1
	}
	began := time.Now()
	var workers sync.WaitGroup
	for i := range *jobs {
		w := &worker{binary: binary}
		if i == 0 && *profile != "" {
			w.flags = append(w.flags, "-test.cpuprofile="+*profile)
		}
		workers.Go(func() { s.work(t, w) })
	}
	workers.Wait()
	hours := s.virtual.Hours()
	t.Logf("%d runs, %.1f simulated hours in %v, for each %.2f s of a processor; %.0f grants and %.0f faults an hour", s.runs, hours,
		time.Since(began).Round(time.Second), s.cpu.Seconds()/hours, float64(s.grants)/hours, float64(s.faults)/hours)
	if *duration > 0 {
		t.Log("fault × state of a lock when it began:\n" + s.table())
	}
}

// A tally counts what a search has done.
type tally struct {
	mu       sync.Mutex
	first    uint64 // seed
	taken    uint64 // how many runs have begun
	most     uint64 // how many there are to be
	end      time.Time
	runs     int
	failed   int
	virtual  time.Duration
	cpu      time.Duration
	grants   int
	faults   int
	coverage map[string]int
}

func (s *tally) take() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == s.most || time.Now().After(s.end) || s.failed >= *most {
		return 0, false
	}
	s.taken++
	return s.first + (s.taken-1) / *repeat, true
}

func (s *tally) work(t *testing.T, w *worker) {
	defer w.close()
	for {
		seed, ok := s.take()
		if !ok {
			return
		}
		p := planOf(seed, *on)
		if isLeftOut(p) {
			continue
		}
		p.Trace = *trace
		began := time.Now()
		r := w.run(p)
		if *verbose {
			fmt.Fprintln(os.Stderr, "seed", seed, p.Backend, time.Since(began).Round(time.Millisecond), r.Grants, r.Violations)
		}
		if *stuttering && isStuck(r) {
			continue
		}
		s.add(r)
		if len(r.Violations) > 0 {
			t.Error(w.explain(p, r, *shrinking))
		}
	}
}

// planOf draws a plan that has only the faults that are wanted.
func planOf(seed uint64, backend string) *Plan {
	p, wanted := NewPlan(seed, backend), regexp.MustCompile(*only)
	if *stuttering {
		p.stutters()
	}
	if *standing {
		p.standstills()
	}
	p.Small = *small
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { return !wanted.MatchString(f.name()) })
	return p
}

// isLeftOut reports whether a plan has none of the faults that are looked for.
func isLeftOut(p *Plan) bool { return *only != "" && len(p.Faults) == 0 }

func (s *tally) add(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.virtual += r.Virtual
	s.cpu += r.CPU
	s.grants += r.Grants
	s.faults += r.Faults
	if len(r.Violations) > 0 {
		s.failed++
	}
	for k, n := range r.Coverage {
		s.coverage[k] += n
	}
}

// table is what was covered, with a column for each state.
func (s *tally) table() string {
	states := []string{"free", "held", "held+queue", "read", "read+queue", "free+queue"}
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s", "")
	for _, st := range states {
		fmt.Fprintf(&b, "%12s", st)
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		if k == "word" || k == "unacknowledged" || k == "locked-out" || k == "ungreeted" {
			continue // it goes with another
		}
		fmt.Fprintf(&b, "\n%-14s", k)
		for _, st := range states {
			fmt.Fprintf(&b, "%12d", s.coverage[k+" × "+st])
		}
	}
	return b.String()
}
