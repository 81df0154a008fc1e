package natsbackend

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/backend"
)

// Compare-and-set favours clients that are near: between the read and the write of
// a distant one there is always another's write. After a few writes in vain a client
// asks the others to leave a key alone for as long as it needs. It is a message
// without an answer, and nothing but fairness depends on it.
type yielding struct {
	nc      *nats.Conn
	subject string
	self    string
	sub     *nats.Subscription

	mu    sync.Mutex
	until map[string]time.Time // by key
}

const (
	vainWrites = 3
	mostYield  = 200 * time.Millisecond
)

func newYielding(nc *nats.Conn, bucket string) (*yielding, error) {
	y := &yielding{nc: nc, subject: "dlock.yield." + bucket, self: nats.NewInbox(), until: make(map[string]time.Time)}
	var err error
	y.sub, err = nc.Subscribe(y.subject, y.hear)
	return y, err
}

func (y *yielding) hear(m *nats.Msg) {
	f := strings.Fields(string(m.Data))
	if len(f) != 3 || f[0] == y.self {
		return
	}
	d, err := time.ParseDuration(f[2])
	if err != nil || d <= 0 {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.until) >= mostSights {
		clear(y.until)
	}
	y.until[f[1]] = time.Now().Add(min(d, mostYield))
}

// ask has others leave key alone for a few exchanges that take as long as the last.
func (y *yielding) ask(key string, exchange time.Duration) {
	_ = y.nc.Publish(y.subject, []byte(y.self+" "+key+" "+(4*exchange).String()))
}

// wait leaves key alone for as long as somebody has asked.
func (y *yielding) wait(ctx context.Context, key string) {
	y.mu.Lock()
	until, ok := y.until[key]
	delete(y.until, key)
	y.mu.Unlock()
	if ok {
		backend.Sleep(ctx, time.Until(until))
	}
}

func (y *yielding) close() { _ = y.sub.Unsubscribe() }
