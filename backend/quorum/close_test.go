package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A leaver is a distant node whose Close gives back on a new connection what a request may have got.
type leaver struct {
	*distant
	told bool
}

func (l *leaver) Close(ctx context.Context) error {
	if !backend.Sleep(ctx, 8*time.Duration(l.trip.Load())) {
		return backend.WaitEnded(ctx, false)
	}
	l.told = true
	return l.distant.Close(ctx)
}

// Close waits until a node that answers has heard of it, however far that is, and whether it has answered before or not.
func TestCloseAtADistance(t *testing.T) {
	for _, trip := range []time.Duration{40 * time.Millisecond, 120 * time.Millisecond, 240 * time.Millisecond} {
		for _, calls := range []int{1, 5} {
			ripe(t, 3, func(t *testing.T, s nodes) {
				var all []backend.Backend
				for i := range s {
					all = append(all, &distant{Backend: memory.New(s[i])})
				}
				last := &leaver{distant: all[2].(*distant)}
				last.trip.Store(int64(trip))
				all[2] = last
				c := over(t, all, nil)
				for range calls {
					l, err := c.Mutex("x").Lock(t.Context())
					ok(t, err)
					ok(t, l.Unlock(t.Context()))
					if calls > 1 {
						time.Sleep(time.Second)
					}
				}
				ok(t, c.Close(context.Background()))
				if !last.told {
					t.Errorf("at %v, after %d calls: the node has not heard of it", trip, calls)
				}
			})
		}
	}
}

// A hanger is a distant node that hangs from when it is closed on, and ends a little after its context.
type hanger struct {
	*distant
	late time.Duration
}

func (h hanger) Close(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(h.late)
	return backend.WaitEnded(ctx, false)
}

// Close of which a majority hears succeeds, within its time, where a node far away hangs meanwhile. Its first answers
// have taken several round trips, so that its next ones may, too.
func TestCloseWhileAFarNodeHangs(t *testing.T) {
	for _, limit := range []time.Duration{time.Hour, time.Second} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			var all []backend.Backend
			for i := range s {
				all = append(all, &distant{Backend: memory.New(s[i])})
			}
			last := all[2].(*distant)
			all[2] = hanger{last, 100 * time.Millisecond}
			c := over(t, all, nil)
			for _, trip := range []time.Duration{2 * time.Second, 240 * time.Millisecond, 240 * time.Millisecond} {
				last.trip.Store(int64(trip))
				l, err := c.Mutex("x").Lock(t.Context())
				ok(t, err)
				ok(t, l.Unlock(t.Context()))
				time.Sleep(5 * time.Second)
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			began := time.Now()
			ok(t, c.Close(ctx))
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("with %v to close it took %v", limit, took)
			}
		})
	}
}

// Close that has little time succeeds if a majority has heard of it, also where another node takes a while to end what
// it is doing.
func TestCloseInLittleTime(t *testing.T) {
	for _, limit := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			var all []backend.Backend
			for i := range s {
				all = append(all, &distant{Backend: memory.New(s[i])})
			}
			all[2] = hanger{all[2].(*distant), 250 * time.Millisecond}
			c := over(t, all, nil)
			_, err := c.Mutex("x").Lock(t.Context())
			ok(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			began := time.Now()
			if err := c.Close(ctx); err != nil {
				t.Errorf("with %v to close: %v", limit, err)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("with %v to close it took %v", limit, took)
			}
			time.Sleep(time.Second) // until the node has ended
		})
	}
}
