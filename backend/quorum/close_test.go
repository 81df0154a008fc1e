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
