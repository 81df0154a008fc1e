package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/clock"
)

// An executor is a worker that locks, unlocks and writes when a test commands it. It has
// several locks, and a client for each, so that a test can cut off one and not the others.
type executor struct {
	Job
	locks []*commandedLock
	mu    sync.Mutex
	out   *json.Encoder
}

type commandedLock struct {
	client *dlock.Client
	lease  atomic.Pointer[dlock.Lease]
	store  *storeConn
}

// execute reads commands from in, one a line: lock, unlock or write, and the number of a
// lock. It writes to out, as events whose Call is that number, what came of each command,
// each lease that is lost, and each time in which the process did not run.
func execute(j Job, open func(n int) (*dlock.Client, error), in io.Reader, out io.Writer) error {
	x := &executor{Job: j, out: json.NewEncoder(out)}
	for i := range j.LockURLs {
		c, err := open(i)
		if err != nil {
			return err
		}
		store, err := dialStore(j.socket())
		if err != nil {
			return err
		}
		x.locks = append(x.locks, &commandedLock{client: c, store: store})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { noteStalls(ctx, j.TTL, x.tell) })
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var verb string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &verb, &n); err != nil {
			return err
		}
		all.Go(func() { x.do(ctx, verb, n) })
	}
	cancel()
	all.Wait()
	return x.close()
}

func (x *executor) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthLimit)
	defer cancel()
	var problems []error
	for _, l := range x.locks {
		problems = append(problems, l.client.Close(ctx), l.store.conn.Close())
	}
	return errors.Join(problems...)
}

func (x *executor) tell(e Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_ = x.out.Encode(e) // nobody listens any more
}

func (x *executor) do(ctx context.Context, verb string, n int) {
	l := x.locks[n]
	var err error
	var e Event
	switch verb {
	case "lock":
		e.Kind = Granted
		var lease *dlock.Lease
		if lease, err = l.client.Mutex(lockName(n)).Lock(ctx); err == nil {
			e.At, e.Token = clock.Now(), lease.Token()
			l.lease.Store(lease)
			go x.watch(n, lease)
		}
	case "unlock":
		e.Kind = Unlocked
		err = l.lease.Load().Unlock(context.Background())
	case "write": // whatever the lease says
		e.Kind = Wrote
		var ok bool
		if _, ok, err = l.store.ask("put %s %d 1", lockName(n), l.lease.Load().Token()); !ok {
			e.Kind = Refused
		}
		e.Err = classify(l.lease.Load().Err())
	}
	e.Call = n
	if err != nil {
		e.Err, e.Text = classify(err), err.Error()
	}
	if e.At == 0 {
		e.At = clock.Now()
	}
	x.tell(e)
}

func lockName(n int) string { return fmt.Sprintf("lock/%d", n) }

func (x *executor) watch(n int, l *dlock.Lease) {
	<-l.Done()
	if at := clock.Now(); errors.Is(l.Err(), dlock.ErrLost) {
		x.tell(Event{At: at, Kind: Lost, Call: n})
	}
}
