package simulation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A shelf is the way of one client to one of several servers in memory that decide together. A
// backend in memory can be cut off, answer late, and fail once. What it has not is the time that a
// request takes, a server that refuses all requests for a while, and answers that are lost of any of
// several requests at once: those are here.
type shelf struct {
	*memory.Backend
	way    *way
	client int
	of     *shelves
	place  int

	mu      sync.Mutex
	refuses time.Time // nothing is sent until then
	drops   int       // of how many requests the answers will be lost
}

// errNoAnswer is why a request whose answer was lost has failed.
var errNoAnswer = backend.Fail(backend.ErrUnavailable, errReset)

// send takes a request to the server, and says whether the answer will be lost.
func (s *shelf) send(ctx context.Context) (lost bool, err error) {
	s.mu.Lock()
	refused := time.Now().Before(s.refuses)
	if lost = s.drops > 0 && !refused; lost {
		s.drops--
	}
	s.mu.Unlock()
	if refused {
		return false, backend.Fail(backend.ErrUnavailable, errRefused)
	}
	if sleep(ctx, s.way.latency(up, 0)) != nil {
		return false, backend.WaitEnded(ctx, false)
	}
	return lost, nil
}

// sent does what one request asks for, once that has arrived.
func (s *shelf) sent(ctx context.Context, do func() error) error {
	lost, err := s.send(ctx)
	if err != nil {
		return err
	}
	if err = do(); lost {
		return errNoAnswer
	}
	return err
}

// bounded is sent for what has to end within the TTL of a hold.
func (s *shelf) bounded(ctx context.Context, h *backend.Hold, do func(ctx context.Context) error) error {
	ctx, cancel := backend.Bound(ctx, h.TTL)
	defer cancel()
	return s.sent(ctx, func() error {
		defer s.around(h.Name)()
		return do(ctx)
	})
}

func (s *shelf) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	return s.Vote(ctx, r, backend.Ballot{})
}

// Vote takes back what was granted, if its caller is not told of that.
func (s *shelf) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	s.of.owns(r.ID.Client, s.client)
	lost, err := s.send(ctx)
	if err != nil {
		return nil, err
	}
	defer s.around(r.Name)()
	h, err := s.Backend.Vote(ctx, r, v)
	if !lost {
		return h, err
	}
	if err == nil {
		go func() { _ = s.Backend.Release(context.WithoutCancel(ctx), h) }()
	}
	return nil, errNoAnswer
}

// Renew leaves a hold as it was that is not known to be renewed.
func (s *shelf) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	lost, err := s.send(ctx)
	defer s.around(namesOf(holds)...)()
	if err == nil && !lost {
		s.Backend.Renew(ctx, holds, report)
		return
	}
	var before []time.Time
	for _, h := range holds {
		before = append(before, h.Sent)
	}
	if lost {
		err = errNoAnswer
		s.Backend.Renew(ctx, holds, func(*backend.Hold, error) {})
	}
	for i, h := range holds {
		h.Sent = before[i]
		report(h, err)
	}
}

func (s *shelf) Release(ctx context.Context, h *backend.Hold) error {
	return s.bounded(ctx, h, func(ctx context.Context) error { return s.Backend.Release(ctx, h) })
}

func (s *shelf) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := backend.BoundAll(ctx, holds)
	defer cancel()
	outcomes := make(map[*backend.Hold]error)
	err := s.sent(ctx, func() error {
		defer s.around(namesOf(holds)...)()
		s.Backend.ReleaseAll(ctx, holds, func(h *backend.Hold, err error) { outcomes[h] = err })
		return nil
	})
	for _, h := range holds {
		report(h, cmp.Or(err, outcomes[h]))
	}
}

func (s *shelf) Expire(ctx context.Context, h *backend.Hold, d time.Duration) error {
	return s.bounded(ctx, h, func(ctx context.Context) error { return s.Backend.Expire(ctx, h, d) })
}

func (s *shelf) Reenter(ctx context.Context, h *backend.Hold, entries int, seq int64) error {
	return s.bounded(ctx, h, func(ctx context.Context) error { return s.Backend.Reenter(ctx, h, entries, seq) })
}

func (s *shelf) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return s.bounded(ctx, h, func(ctx context.Context) error { return s.Backend.RaiseToken(ctx, h, token) })
}

func (s *shelf) LowerToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return s.bounded(ctx, h, func(ctx context.Context) error { return s.Backend.LowerToken(ctx, h, token) })
}

func (s *shelf) Downgrade(ctx context.Context, h *backend.Hold) error {
	return s.bounded(ctx, h, func(ctx context.Context) error { return s.Backend.Downgrade(ctx, h) })
}

func (s *shelf) Ping(ctx context.Context) (version string, err error) {
	err = s.sent(ctx, func() (err error) {
		version, err = s.Backend.Ping(ctx)
		return err
	})
	return version, err
}

func (s *shelf) Examine(ctx context.Context, report func(backend.Finding)) error {
	return s.sent(ctx, func() error { return s.Backend.Examine(ctx, report) })
}

func (s *shelf) Inspect(ctx context.Context, name string) (found backend.Snapshot, err error) {
	err = s.sent(ctx, func() (err error) {
		found, err = s.Backend.Inspect(ctx, name)
		return err
	})
	return found, err
}

func (s *shelf) Break(ctx context.Context, name string, token uint64) error {
	return s.sent(ctx, func() error {
		defer s.around(name)()
		return s.Backend.Break(ctx, name, token)
	})
}

func (s *shelf) Close(ctx context.Context) error {
	defer s.around(s.of.names...)()
	return s.Backend.Close(ctx)
}

// shelves are the servers in memory of a quorum, and who asks them.
type shelves struct {
	servers []*memory.Server
	looks   []*memory.Backend // of the world itself
	names   []string          // of all locks
	world   *world
	places  []*server // what stands for each where one of Redis would have a history

	looking sync.Mutex
	truths  []map[string]truth // what was seen last

	mu     sync.Mutex
	all    []*shelf
	owners map[string]int // by the id that a client has in the library
	stands []map[string]stand
}

// owns notes by which id a client asks.
func (s *shelves) owns(id string, client int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[id] = client
	s.world.owners.LoadOrStore(id, s.world.label(client))
}

// furnish starts the servers. They remember for long enough to vote.
func (w *world) furnish() error {
	s := &shelves{owners: make(map[string]int), names: w.names(), world: w}
	w.shelves = s
	for place := range w.plan.Servers {
		m := memory.NewServer()
		if place < len(w.plan.Skews) {
			m.SetClock(w.plan.Skews[place])
		}
		look := memory.New(m)
		s.stand(place)
		s.servers, s.looks, s.stands = append(s.servers, m), append(s.looks, look), append(s.stands, make(map[string]stand))
		first := backend.Request{Name: "first", Mode: backend.Exclusive, TTL: time.Second, ID: backend.ID{Client: "world"}}
		h, err := look.Vote(context.Background(), first, backend.Ballot{Rejoin: 1})
		if err == nil {
			err = look.Release(context.Background(), h)
		}
		if err != nil && !isNotReady(err) {
			return err
		}
	}
	time.Sleep(w.plan.rejoining())
	w.reg.began = time.Now()
	return nil
}

// members are the ways of a client to all servers.
func (s *shelves) members(w *world, client int) (all []backend.Backend) {
	for place, m := range s.servers {
		way := w.net.way(client, place)
		way.base, way.jitter = w.plan.Latency, w.plan.Jitter
		if place == w.plan.Servers-1 {
			way.base += w.plan.Far
		}
		one := &shelf{Backend: memory.New(m), way: way, client: client, of: s, place: place}
		one.Delay(way.base)
		s.mu.Lock()
		s.all = append(s.all, one)
		s.mu.Unlock()
		all = append(all, one)
	}
	return all
}

// those are the ways that a fault concerns.
func (s *shelves) those(f Fault) []*shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(one *shelf) bool {
		return f.Client >= 0 && f.Client != one.client || f.Server != everywhere && f.Server != one.place
	})
}

// happens has a fault happen. The words for them are those of a server that is simulated.
func (s *shelves) happens(f Fault) {
	end := time.Now().Add(f.For)
	later := func(g func()) { time.AfterFunc(f.For, g) }
	switch f.Kind {
	case "pause":
		s.freeze(f.Server)
		later(func() { s.thaw(f.Server) })
	case "restart-empty":
		s.freeze(f.Server)
		later(func() {
			s.servers[f.Server].Wipe()
			s.thaw(f.Server)
		})
	case "flush":
		s.servers[f.Server].Wipe()
		s.stirs(f.Server, s.names...)
	default:
		for _, one := range s.those(f) {
			one.suffers(f, end)
		}
	}
}

// freeze stops a server, and notes what it has.
func (s *shelves) freeze(place int) {
	for _, name := range s.names {
		s.look(place, name)
	}
	s.servers[place].Freeze()
}

func (s *shelves) thaw(place int) {
	s.servers[place].Thaw()
	s.stirs(place, s.names...)
}

// suffers has a fault happen on the way of one client to one server.
func (s *shelf) suffers(f Fault, end time.Time) {
	later := func(g func()) { time.AfterFunc(f.For, g) }
	switch f.Kind {
	case "hole":
		s.Cut()
		later(func() {
			s.Heal()
			s.of.stirs(s.place, s.of.names...)
		})
	case "delay":
		s.Delay(s.way.base + f.Size)
		later(func() { s.Delay(s.way.base) })
	case "reset":
		s.FailNext(backend.Fail(backend.ErrUnavailable, errReset))
		later(func() { s.FailNext(nil) }) // who has sent nothing meanwhile connects anew first
	case "cut":
		s.mu.Lock()
		s.refuses = end
		s.mu.Unlock()
	case "unanswered":
		s.mu.Lock()
		s.drops = int(f.Size)
		s.mu.Unlock()
		later(func() {
			s.mu.Lock()
			s.drops = 0
			s.mu.Unlock()
		})
	}
}
