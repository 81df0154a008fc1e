package quorum

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A deaf node answers no ping.
type deaf struct{ backend.Backend }

func (deaf) Ping(context.Context) (string, error) { return "", backend.ErrUnavailable }

// A node answers a request while pings of it are in vain. Whatever is noted of it last, none is gone that is not
// silent: where all nodes are needed nobody who waits would ask it, or ping it, again.
func TestNoNodeIsGoneThatIsNotSilent(t *testing.T) {
	b := &Backend{need: 1}
	n := &node{Backend: deaf{}, pinger: deaf{}, made: time.Now()}
	b.nodes = []*node{n}
	wrong := 0
	const times = 20_000
	for range times {
		n.gone.Store(false)
		n.silent.Store(false)
		n.nextPing.Store(0)
		var both sync.WaitGroup
		both.Add(1)
		n.check(b, time.Second, both.Done)
		both.Go(func() { n.observe(time.Millisecond, nil) })
		both.Wait()
		if n.gone.Load() && !n.silent.Load() {
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("gone, and not silent: %d of %d times", wrong, times)
	}
}
