package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/clock"
)

// A Job says what a worker does.
type Job struct {
	Worker  int
	URL     string        // of the backend
	TTL     time.Duration // of its locks
	Think   time.Duration // between two turns of a caller, on average
	Callers int           // goroutines
	Seed    uint64
	Dir     string // holds the journals, the numbers without a fence, and the store's socket

	// LockURLs has the URL of the backend for each lock of an executor. Others have none.
	LockURLs []string
}

func (j *Job) journal() string { return filepath.Join(j.Dir, fmt.Sprintf("worker-%d.jsonl", j.Worker)) }
func (j *Job) socket() string  { return filepath.Join(j.Dir, "store") }

// The environment variable that makes the test binary a worker, with its job.
const jobEnv = "DLOCK_CHAOS_JOB"

// Main does the job of a worker process, and reports whether this is one.
func Main() (code int, is bool) {
	text, is := os.LookupEnv(jobEnv)
	if !is {
		return 0, false
	}
	var j Job
	err := json.Unmarshal([]byte(text), &j)
	switch {
	case err != nil:
	case len(j.LockURLs) > 0:
		err = execute(j, func(n int) (*dlock.Client, error) {
			return dlock.Open(context.Background(), j.LockURLs[n], &dlock.Options{TTL: j.TTL})
		}, os.Stdin, os.Stdout)
	default:
		open := func() (*dlock.Client, error) {
			return dlock.Open(context.Background(), j.URL, &dlock.Options{TTL: j.TTL, Label: "chaos"})
		}
		err = serve(j, open, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// A worker is a client whose callers take locks and give them back.
type worker struct {
	Job
	client  *dlock.Client
	journal *journal
	calls   atomic.Int64
	watches sync.WaitGroup

	mu         sync.Mutex
	checkpoint int                  // the last that was asked for
	behind     map[int]bool         // the callers that have yet to reach it
	reached    func(checkpoint int) // called when all have
}

// serve works until in ends, and then closes the client. Each line "checkpoint N" of
// in is answered by "reached N" when every caller has held a lock anew.
func serve(j Job, open func() (*dlock.Client, error), in io.Reader, out io.Writer) error {
	log, err := newJournal(j.journal())
	if err != nil {
		return err
	}
	client, err := open()
	if err != nil {
		return err
	}
	w := &worker{Job: j, client: client, journal: log}
	w.reached = func(n int) { fmt.Fprintln(out, "reached", n) }
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { noteStalls(ctx, j.TTL, w.journal.write) })
	for i := range j.Callers {
		all.Go(func() { w.runCaller(ctx, i) })
	}
	w.listen(in)
	cancel()
	all.Wait()
	return errors.Join(w.finish(), log.close())
}

func (w *worker) listen(in io.Reader) {
	var n int
	for {
		if _, err := fmt.Fscanf(in, "checkpoint %d\n", &n); err != nil {
			return
		}
		w.mu.Lock()
		w.checkpoint, w.behind = n, make(map[int]bool)
		for i := range w.Callers {
			w.behind[i] = true
		}
		w.mu.Unlock()
	}
}

// finish closes the client, and writes down what it left behind.
func (w *worker) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := w.client.Close(ctx)
	w.watches.Wait()
	e := Event{At: clock.Now(), Kind: Finished}
	if err != nil {
		e.Err, e.Text = classify(err), err.Error()
	}
	w.journal.write(e)
	return nil
}

// noteStalls tells when the process did not run for longer than part of a margin:
// what it believed meanwhile proves nothing.
func noteStalls(ctx context.Context, ttl time.Duration, tell func(Event)) {
	const beat = 5 * time.Millisecond
	for last := clock.Now(); backend.Sleep(ctx, beat); {
		at := clock.Now()
		if time.Duration(at-last) > beat+ttl/40 {
			tell(Event{At: at, Kind: Stalled, Seen: last})
		}
		last = at
	}
}

// runCaller has caller i take turns until ctx ends.
func (w *worker) runCaller(ctx context.Context, i int) {
	h := &caller{worker: w, number: i, rng: rand.New(rand.NewPCG(w.Seed, uint64(w.Worker*1000+i))), own: fmt.Sprintf("own/%d/%d", w.Worker, i)}
	var err error
	if h.store, err = dialStore(w.socket()); err != nil {
		panic(err)
	}
	defer h.store.conn.Close()
	for {
		n, isBehind := w.nextCheckpoint(i)
		h.isBehind = isBehind
		if h.turn(ctx) {
			w.noteHeld(i, n)
		}
		if !backend.Sleep(ctx, time.Duration(h.rng.Int64N(int64(2*w.Think)))) {
			return
		}
	}
}

// nextCheckpoint returns the number of the last checkpoint that was asked for, and
// whether caller i has yet to reach it.
func (w *worker) nextCheckpoint(i int) (n int, isBehind bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checkpoint, w.behind[i]
}

// noteHeld notes that caller i has held a lock that it asked for after checkpoint n was
// asked for.
func (w *worker) noteHeld(i, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n != w.checkpoint || !w.behind[i] {
		return
	}
	delete(w.behind, i)
	if len(w.behind) == 0 {
		w.reached(n)
	}
}

// addOne adds one to the number in a file that nothing but a lock protects, in
// one write, so that whoever is killed leaves the old number or the new one.
func addOne(path string) (seen int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 20)
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if n > 0 {
		if seen, err = strconv.ParseInt(strings.TrimSpace(string(buf[:n])), 10, 64); err != nil {
			return 0, err
		}
	}
	_, err = f.WriteAt([]byte(fmt.Sprintf("%20d", seen+1)), 0)
	return seen, err
}
