package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/clock"
)

// In a duel two processes want one lock, and do as they are told. Many are
// fought at once, each in a lane: a lock of its own, and on either side a
// client of its own.

// A duellist is one side of all lanes.
type duellist struct {
	Job
	lanes []*lane
	mu    sync.Mutex
	out   *json.Encoder
}

type lane struct {
	client *dlock.Client
	lease  atomic.Pointer[dlock.Lease]
	store  *storeConn
}

// duel takes lines from in, each a verb and the number of a lane: lock, unlock,
// write. What comes of them is written to out as events, whose Call is the
// lane, and so is every lease that is lost and every time the process did not
// run.
func duel(j Job, open func(lane int) (*dlock.Client, error), in io.Reader, out io.Writer) error {
	d := &duellist{Job: j, out: json.NewEncoder(out)}
	for i := range j.Lanes {
		c, err := open(i)
		if err != nil {
			return err
		}
		store, err := dialStore(j.socket())
		if err != nil {
			return err
		}
		d.lanes = append(d.lanes, &lane{client: c, store: store})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { noteStalls(ctx, j.TTL, d.tell) })
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var verb string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &verb, &n); err != nil {
			return err
		}
		all.Go(func() { d.do(ctx, verb, n) })
	}
	cancel()
	all.Wait()
	return d.close()
}

func (d *duellist) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthLimit)
	defer cancel()
	var problems []error
	for _, l := range d.lanes {
		problems = append(problems, l.client.Close(ctx), l.store.conn.Close())
	}
	return errors.Join(problems...)
}

func (d *duellist) tell(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(e) // nobody listens any more
}

func (d *duellist) do(ctx context.Context, verb string, n int) {
	l := d.lanes[n]
	var err error
	var e Event
	switch verb {
	case "lock":
		e.Kind = Granted
		var lease *dlock.Lease
		if lease, err = l.client.Mutex(laneName(n)).Lock(ctx); err == nil {
			e.At, e.Token = clock.Now(), lease.Token()
			l.lease.Store(lease)
			go d.watch(n, lease)
		}
	case "unlock":
		e.Kind = Unlocked
		err = l.lease.Load().Unlock(context.Background())
	case "write": // whatever the lease says
		e.Kind = Wrote
		var ok bool
		if _, ok, err = l.store.ask("put %s %d 1", laneName(n), l.lease.Load().Token()); !ok {
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
	d.tell(e)
}

func laneName(n int) string { return fmt.Sprintf("duel/%d", n) }

func (d *duellist) watch(n int, l *dlock.Lease) {
	<-l.Done()
	if at := clock.Now(); errors.Is(l.Err(), dlock.ErrLost) {
		d.tell(Event{At: at, Kind: Lost, Call: n})
	}
}

// A Side is how a test sees a duellist.
type Side struct {
	stdin io.WriteCloser
	cmd   *exec.Cmd // nil: in this process
	gone  chan struct{}

	mu     sync.Mutex
	events []Event
	news   chan struct{}
}

// newSide starts a duellist, in a process of its own unless open is given.
func newSide(j Job, open func(lane int) (*dlock.Client, error)) (*Side, error) {
	s := &Side{gone: make(chan struct{}), news: make(chan struct{})}
	if open != nil {
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		s.stdin = stdin
		go func() { _ = out.CloseWithError(duel(j, open, in, out)) }()
		go s.read(stdout)
		return s, nil
	}
	var stdout io.Reader
	var err error
	s.cmd, s.stdin, stdout, err = spawn(j, filepath.Join(j.Dir, fmt.Sprintf("side-%d.out", j.Worker)))
	if err != nil {
		return nil, err
	}
	go func() {
		s.read(stdout)
		_ = s.cmd.Wait() // that it is gone is all that matters
	}()
	return s, nil
}

func (s *Side) read(from io.Reader) {
	defer close(s.gone)
	decoder := json.NewDecoder(from)
	for {
		var e Event
		if decoder.Decode(&e) != nil {
			return
		}
		s.mu.Lock()
		s.events = append(s.events, e)
		close(s.news)
		s.news = make(chan struct{})
		s.mu.Unlock()
	}
}

func (s *Side) tell(verb string, lane int) error {
	_, err := fmt.Fprintln(s.stdin, verb, lane)
	return err
}

// await returns the first event of a lane, after the time since, that is one of
// the kinds.
func (s *Side) await(ctx context.Context, lane int, since int64, kinds ...Kind) (Event, error) {
	for {
		s.mu.Lock()
		events, news := s.events, s.news
		s.mu.Unlock()
		for _, e := range events {
			for _, k := range kinds {
				if e.Kind == k && e.Call == lane && e.At > since {
					return e, nil
				}
			}
		}
		select {
		case <-news:
		case <-s.gone:
			return Event{}, errors.New("a side of the duel is gone")
		case <-ctx.Done():
			return Event{}, fmt.Errorf("lane %d: none of %v", lane, kinds)
		}
	}
}

// stalled says whether the process did not run for some time after since.
func (s *Side) stalled(since int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == Stalled && e.At > since {
			return true
		}
	}
	return false
}

// close ends the side in good order, and kills what does not end.
func (s *Side) close() {
	s.stdin.Close()
	select {
	case <-s.gone:
	case <-time.After(healthLimit):
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
		}
	}
}
