package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// batch is how many holds one script renews. On a cluster, where a script may
// use the keys of one slot only, that many leave together.
const batch = 100

// A renewal is one hold to be kept alive.
type renewal struct {
	hold  *backend.Hold
	id    string
	keys  *keys
	ttl   time.Duration
	till  int64 // ms of the server's time beyond which it is not extended; 0: no bound
	state *state
}

// Renew implements backend.Renewer. Every batch is a request of its own: one
// that is late holds up nobody but itself.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	all := make([]*renewal, len(holds))
	for i, h := range holds {
		s := h.State.(*state)
		all[i] = &renewal{hold: h, id: s.id, keys: lockKeys(h.Name), ttl: h.TTL, state: s}
	}
	if b.nodes != nil {
		b.renewShards(ctx, all, report)
		return
	}
	var done sync.WaitGroup
	for part := range slices.Chunk(all, batch) {
		done.Go(func() { b.renewTogether(ctx, part, report) })
	}
	done.Wait()
}

// renewTogether renews holds by one script.
func (b *Backend) renewTogether(ctx context.Context, part []*renewal, report func(*backend.Hold, error)) {
	a, err := b.renewBatch(ctx, part)
	for i, r := range part {
		if err != nil {
			report(r.hold, fail(err))
			continue
		}
		report(r.hold, r.renewed(a, a.int(1+2*i), a.int(2+2*i)))
	}
}

// renewed takes what the server said of one hold.
func (r *renewal) renewed(a answer, expiry, contended int64) error {
	if expiry == 0 {
		return backend.ErrLost
	}
	r.hold.Sent = a.sent
	r.hold.Granted = time.Duration(expiry*1000-a.int(0)) * time.Microsecond
	if contended > 0 {
		r.state.wanted()
	}
	return nil
}

func (b *Backend) renewBatch(ctx context.Context, part []*renewal) (answer, error) {
	return b.run(ctx, attempt(part[0].ttl), renewScript, renewCall(part...))
}

func renewCall(part ...*renewal) []any {
	names := make([]any, 0, 3*len(part))
	args := make([]any, 0, 1+3*len(part))
	args = append(args, keep.Milliseconds())
	for _, r := range part {
		names = append(names, r.keys.args[:3]...)
		args = append(args, r.id, millis(r.ttl), r.till)
	}
	return renewScript.call(names, args...)
}
