package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/clock"
)

// A Subject is a backend under test.
type Subject struct {
	Name, Version string
	TTL           time.Duration

	// URL is where a worker process finds the backend, through the proxies at
	// addr if Target is not empty.
	URL    func(addr string) string
	Target string // addresses of the servers, with commas between; empty: there is none

	// Here, if not nil, opens a client of a backend that lives in this
	// process, in place of URL.
	Here func(worker int) (*dlock.Client, error)

	// Cut and Heal are for a backend in this process what the proxy is for
	// others. Nil where nothing can stand between.
	Cut, Heal func(worker int)

	// Leased says that the server ends the hold of whoever it hears nothing
	// of.
	Leased bool

	// Several says that the backend is several servers, of which a majority
	// decides.
	Several bool

	// Queues says that a request which waits may join the server's queue before
	// it has been told whether the lock is held.
	Queues bool

	Faults  []Fault
	Residue func(context.Context) ([]string, error) // what the server still has of the workers
}

// A Fault is something that the nemesis can do.
type Fault struct {
	ID   string // of the matrix
	Name string

	// How long it is held before it is healed, in TTLs.
	Min, Max float64

	// Forgets says that the server may forget who holds a lock.
	Forgets bool

	// Inject does it, to a worker or to the server, and returns how to heal
	// it.
	Inject func(context.Context, *Victim) (heal func() error, err error)
}

// A Victim is a worker with its way to the server.
type Victim struct {
	*Worker
	Proxies Proxies      // none where there is no server
	restart func() error // starts another worker in its place
}

// Options of a run.
type Options struct {
	Seed    uint64
	Rounds  int           // how many faults to inject; each kind once before any again
	For     time.Duration // go on that long at least, whatever Rounds says
	Workers int
	Callers int
	Think   time.Duration
	Dir     string // for the histories; empty before the run
	Log     func(format string, args ...any)
}

// healthLimit is how long after a fault all workers must have got on. It is
// generous: what a recovery took is measured, and this only ends a run that
// hangs.
const healthLimit = 4 * time.Minute

// Canary is a password that must show nowhere.
const Canary = "canary-4f1d"

// A run is a nemesis at work on a subject.
type run struct {
	Subject
	Options
	rng         *rand.Rand
	store       *Store
	victims     []*Victim
	past        []*Worker // that have been killed
	started     int
	checkpoints int
	faults      []Injected
}

// Run sets the nemesis on s and returns what became of it. An error means that
// the run could not go on: a worker that never recovered, above all. The
// result then says what happened until then.
func Run(ctx context.Context, s Subject, o Options) (*Result, error) {
	r := &run{Subject: s, Options: o, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	began := time.Now()
	err := r.play(ctx)
	err = errors.Join(err, r.end(ctx, err != nil))
	res, e := r.result()
	res.Took = time.Since(began)
	return res, errors.Join(err, e)
}

func (r *run) play(ctx context.Context) error {
	var err error
	if r.store, err = NewStore(filepath.Join(r.Dir, "store")); err != nil {
		return err
	}
	for range r.Workers {
		if err := r.addWorker(); err != nil {
			return err
		}
	}
	if _, err := r.awaitProgress(ctx); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	began := time.Now()
	for f := range plan(r.rng, r.Subject.Faults) {
		n := len(r.faults)
		if n >= r.Rounds && time.Since(began) >= r.For {
			return nil
		}
		if err := r.inject(ctx, f); err != nil {
			return fmt.Errorf("fault %d, %s %s: %w", n+1, f.ID, f.Name, err)
		}
	}
	return nil
}

// plan picks faults without end: all of them in some order, and again.
func plan(rng *rand.Rand, from []Fault) iter.Seq[Fault] {
	return func(yield func(Fault) bool) {
		for {
			for _, i := range rng.Perm(len(from)) {
				if !yield(from[i]) {
					return
				}
			}
		}
	}
}

// addWorker adds a worker.
func (r *run) addWorker() error {
	v := &Victim{}
	var err error
	if v.Proxies, err = listen(r.Target); err != nil {
		return err
	}
	v.restart = func() error {
		r.past = append(r.past, v.Worker)
		return r.startWorker(v)
	}
	r.victims = append(r.victims, v)
	return r.startWorker(v)
}

// startWorker starts the worker of v.
func (r *run) startWorker(v *Victim) error {
	r.started++
	j := Job{Worker: r.started, TTL: r.TTL, Think: r.Think, Callers: r.Callers, Seed: r.Seed, Dir: r.Dir}
	if r.Here != nil {
		n := r.started
		v.Worker = startHere(j, func() (*dlock.Client, error) { return r.Here(n) })
		return nil
	}
	j.URL = r.URL(v.Proxies.Addr())
	var err error
	v.Worker, err = start(j)
	return err
}

// awaitProgress waits until each caller of each worker has had a lock that all want, and
// returns how long that took.
func (r *run) awaitProgress(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	began := time.Now()
	r.checkpoints++
	var problems []error
	for _, v := range r.victims {
		problems = append(problems, v.ask(r.checkpoints))
	}
	for _, v := range r.victims {
		problems = append(problems, v.await(ctx, r.checkpoints))
	}
	return time.Since(began), errors.Join(problems...)
}

// inject injects f, holds it, heals it and waits for health.
func (r *run) inject(ctx context.Context, f Fault) error {
	v := r.victims[r.rng.IntN(len(r.victims))]
	hold := time.Duration((f.Min + r.rng.Float64()*(f.Max-f.Min)) * float64(r.TTL))
	r.Log("%s: fault %d: %s %s, worker %d, for %v", r.Subject.Name, len(r.faults)+1, f.ID, f.Name, v.Job.Worker, hold.Round(time.Millisecond))
	r.faults = append(r.faults, Injected{Fault: f.ID, Name: f.Name, Span: Span{From: clock.Now()}, Forgets: f.Forgets})
	it := &r.faults[len(r.faults)-1]
	heal, err := f.Inject(ctx, v)
	if err != nil {
		return err
	}
	backend.Sleep(ctx, hold)
	if heal != nil {
		if err := heal(); err != nil {
			return err
		}
	}
	it.Span.To = clock.Now()
	took, err := r.awaitProgress(ctx)
	if err != nil {
		return err
	}
	it.Healthy, it.Recovery = clock.Now(), took
	return nil
}

// end closes everything. Workers that hang are killed.
func (r *run) end(ctx context.Context, failed bool) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	var problems []error
	for _, v := range r.victims {
		if v.Worker == nil {
			continue
		}
		if failed && v.cmd != nil {
			problems = append(problems, v.end(syscall.SIGKILL))
		} else {
			problems = append(problems, v.quit(ctx))
		}
	}
	if !failed && r.Residue != nil {
		problems = append(problems, r.clean(ctx))
	}
	for _, v := range r.victims {
		problems = append(problems, v.Proxies.Close())
	}
	if r.store != nil {
		problems = append(problems, r.store.Close())
	}
	return errors.Join(problems...)
}

// clean waits until the server has nothing left of the workers.
func (r *run) clean(ctx context.Context) error {
	for {
		left, err := r.Residue(ctx)
		if err == nil && len(left) == 0 {
			return nil
		}
		if !backend.Sleep(ctx, r.TTL/10) {
			return fmt.Errorf("left on the server: %v %v", left, err)
		}
	}
}

// result checks the histories.
func (r *run) result() (*Result, error) {
	h := History{Faults: r.faults, Patience: int64(r.TTL / 20), Lease: int64(r.TTL), Several: r.Several, Queues: r.Queues}
	var problems []error
	for _, v := range r.victims {
		if v.Worker != nil {
			r.past = append(r.past, v.Worker)
		}
	}
	for _, w := range r.past {
		t, err := w.history()
		h.Traces = append(h.Traces, t)
		problems = append(problems, err)
	}
	res := &Result{Backend: r.Subject.Name, Version: r.Version, Seed: r.Seed, TTL: r.TTL, Faults: r.faults}
	if r.store != nil {
		h.Writes, res.Refused = r.store.Writes()
	}
	res.Operations = h.Operations()
	res.Violations = h.Check()
	linear, checked := h.Linear(r.Dir)
	res.Violations, res.Searched = append(res.Violations, linear...), checked
	if path := leak(r.Dir); path != "" {
		res.Violations = append(res.Violations, Violation{"I10", "", "a password stands in " + path})
	}
	return res, errors.Join(problems...)
}

// leak returns a file that holds the password.
func leak(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, path := range files {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(Canary)) {
			return path
		}
	}
	return ""
}

// A Result is what became of a run.
type Result struct {
	Backend, Version string
	Seed             uint64
	TTL, Took        time.Duration
	Operations       int // calls that were answered
	Searched         int // short histories compared with every model
	Refused          int // writes that the fenced store refused
	Faults           []Injected
	Violations       []Violation
}

// String is the closing line.
func (r *Result) String() string {
	return fmt.Sprintf("%s %s: %d operations, %d faults, %d violations; %d histories searched, %d late writes refused, seed %d, %v",
		r.Backend, r.Version, r.Operations, len(r.Faults), len(r.Violations), r.Searched, r.Refused, r.Seed, r.Took.Round(time.Second))
}
