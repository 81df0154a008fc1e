package workload

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Queue is what Waiting measures.
type Queue struct {
	// Name is that of the lock.
	Name string

	// Waiters wait for it, spread evenly over Clients. Zero clients means one.
	Waiters, Clients int

	// Time is for how long nothing moves, and then at most for how long
	// everything does.
	Time time.Duration

	// TTL is the lease of the lock. It is longer than the whole measurement.
	TTL time.Duration
}

const (
	spaced    = 5                      // hand-overs with a pause before each
	breath    = 20 * time.Millisecond  // the pause
	slice     = 200 * time.Millisecond // the longest look at a queue that is not at rest yet
	restLimit = 20 * time.Second
)

// Waiting measures a lock that many wait for: at rest, handed over now and then,
// and handed over all the time.
func Waiting(ctx context.Context, c Contender, q Queue) (*Result, error) {
	q.Clients = max(q.Clients, 1)
	clients, close, err := parties(ctx, c, Options{TTL: q.TTL}, q.Clients+1)
	if err != nil {
		return nil, err
	}
	r, err := q.run(ctx, c, clients)
	return r, errors.Join(err, close())
}

// A line is a queue under way.
type line struct {
	Queue
	granted chan time.Time // when the next one got the lock
	proceed chan struct{}  // lets it unlock; closed: at once
	served  atomic.Int64
	waiters sync.WaitGroup
	leave   context.CancelFunc // sends away who still waits
	failed  chan error         // the first error of a waiter
}

func (q Queue) run(ctx context.Context, c Contender, clients []Client) (*Result, error) {
	for _, client := range clients {
		if err := warm(ctx, client, q.Name); err != nil {
			return nil, err
		}
	}
	mine := clients[0].Lock(q.Name)
	if err := mine.Lock(ctx); err != nil {
		return nil, err
	}
	r, bare := newResult(c), footprintNow()
	l := q.form(ctx, clients[1:])
	defer l.dissolve()
	if err := l.rest(ctx, c, r, bare); err != nil {
		return nil, errors.Join(err, mine.Unlock(ctx))
	}
	if err := l.stroll(ctx, r, mine); err != nil {
		return nil, err
	}
	return r, l.rush(ctx, c, r)
}

// form has everybody begin to wait.
func (q Queue) form(ctx context.Context, clients []Client) *line {
	l := &line{Queue: q, granted: make(chan time.Time), proceed: make(chan struct{}), failed: make(chan error, 1)}
	ctx, l.leave = context.WithCancel(ctx)
	for i := range q.Waiters {
		l.waiters.Go(func() { l.wait(ctx, clients[i%len(clients)].Lock(q.Name)) })
	}
	return l
}

func (l *line) wait(ctx context.Context, lock Lock) {
	err := lock.Lock(ctx)
	if err == nil {
		now := time.Now()
		l.served.Add(1)
		select {
		case l.granted <- now:
			<-l.proceed
		case <-l.proceed:
		}
		err = lock.Unlock(context.WithoutCancel(ctx))
	}
	if err != nil && ctx.Err() == nil {
		select {
		case l.failed <- err:
		default:
		}
	}
}

// dissolve ends the queue, wherever it has got to.
func (l *line) dissolve() {
	l.leave()
	select {
	case <-l.proceed:
	default:
		close(l.proceed)
	}
	l.waiters.Wait()
}

// rest measures the queue when nothing moves in it.
func (l *line) rest(ctx context.Context, c Contender, r *Result, bare footprint) error {
	start := time.Now()
	if err := calm(ctx, c.Meter, min(slice, l.Time)); err != nil {
		return err
	}
	r.set(Setup, millis(time.Since(start)), true)
	r.grown(bare, l.Waiters)
	used, err := lookOn(ctx, c.Meter, l.Time)
	used.idle(r)
	return err
}

// calm waits until less and less is done in each look no more: those who poll
// never stop, and others do when they have queued.
func calm(ctx context.Context, m Meter, look time.Duration) error {
	last := -1.0
	for end := time.Now().Add(restLimit); time.Now().Before(end); {
		used, err := lookOn(ctx, m, look)
		if err != nil {
			return err
		}
		work := used.requests
		if !used.metered {
			work = used.client.Seconds() * 1e3 // below a millisecond is nothing
		}
		if last >= 0 && work >= last*3/4-1 {
			return nil
		}
		last = work
	}
	return nil
}

// stroll hands the lock over a few times with pauses between.
func (l *line) stroll(ctx context.Context, r *Result, mine Lock) error {
	start, err := time.Now(), mine.Unlock(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	for {
		at, err := l.next(ctx)
		if err != nil {
			return err
		}
		took = append(took, at.Sub(start))
		if len(took) == min(spaced, l.Waiters) {
			break
		}
		if err := pass(ctx, breath); err != nil {
			return err
		}
		start = time.Now()
		l.proceed <- struct{}{}
	}
	slices.Sort(took)
	r.set(IdlePass, micros(took[len(took)/2]), true)
	return nil
}

// next is when the next one in the queue got the lock.
func (l *line) next(ctx context.Context) (time.Time, error) {
	select {
	case at := <-l.granted:
		return at, nil
	case err := <-l.failed:
		return time.Time{}, err
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// rush hands the lock over all the time, and sends away who is not served then.
func (l *line) rush(ctx context.Context, c Contender, r *Result) error {
	before, err := usageNow(ctx, c.Meter, true)
	if err != nil {
		return err
	}
	already := l.served.Load()
	close(l.proceed)
	gone := make(chan struct{})
	go func() { l.waiters.Wait(); close(gone) }()
	timer := time.NewTimer(l.Time)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	case <-ctx.Done():
	}
	served := l.served.Load()
	after, err := usageNow(ctx, c.Meter, false)
	if err != nil {
		return err
	}
	l.queued(r, between(before, after), float64(served-already))
	r.set(Unfinished, float64(int64(l.Waiters)-served), true)
	select {
	case err = <-l.failed:
	default:
	}
	return err
}

func (l *line) queued(r *Result, used spent, passes float64) {
	some := passes > 0
	r.set(QueuedRate, passes/used.elapsed.Seconds(), some)
	r.set(QueuedCPU, micros(used.client)/passes, some)
	r.set(QueuedWork, micros(used.server)/passes, some && used.metered)
	r.set(QueuedAsks, used.requests/passes, some && used.metered)
}
