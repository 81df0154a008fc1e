package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// batch is how many holds one script renews. On a cluster, where a script may
// use the keys of one slot only, it is one.
const batch = 100

// A renewal is one hold to be kept alive.
type renewal struct {
	hold   *backend.Hold
	id     string
	key    key
	ttl    time.Duration
	till   int64  // ms of the server's time until when it is kept; 0: for ttl
	used   uint64 // the last token of Transfer; 0: none
	shares bool   // it is shared, or may have become so
}

// Renew implements backend.Renewer. Every batch is a request of its own: one
// that is late holds up nobody but itself.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	all := make([]renewal, len(holds))
	for i, h := range holds {
		s := stateOf(h)
		all[i] = renewal{
			hold: h, id: s.id, key: s.key, ttl: h.TTL, used: s.used.Load(), shares: s.shares.Load(),
		}
	}
	if b.nodes != nil {
		b.renewShards(ctx, all, report)
		return
	}
	slices.SortFunc(all, byScript)
	var done sync.WaitGroup
	for rest := all; len(rest) > 0; {
		n := 1
		for n < min(len(rest), batch) && rest[n].shares == rest[0].shares {
			n++
		}
		part := rest[:n]
		rest = rest[n:]
		done.Go(func() { b.renewTogether(ctx, part, report) })
	}
	done.Wait()
}

// byScript puts the holds first that are exclusive for sure.
func byScript(a, b renewal) int {
	switch {
	case a.shares == b.shares:
		return 0
	case b.shares:
		return -1
	}
	return 1
}

// renewTogether renews holds by one script.
func (b *Backend) renewTogether(ctx context.Context, part []renewal, report func(*backend.Hold, error)) {
	a, err := b.renewBatch(ctx, part)
	if err != nil {
		for _, r := range part {
			report(r.hold, fail(err))
		}
		return
	}
	for i, expiry := range outcomes(a, len(part)) {
		report(part[i].hold, part[i].renewed(a, expiry))
	}
}

// renewed takes what the server said of one hold.
func (r *renewal) renewed(a answer, expiry int64) error {
	if expiry == 0 {
		return backend.ErrLost
	}
	s := stateOf(r.hold)
	if expiry < 0 {
		expiry = -expiry
		s.wanted()
	}
	r.hold.Sent = a.sent
	r.hold.Granted = time.Duration(expiry*1000-a.int(0)) * time.Microsecond
	s.expiry.Store(expiry)
	return nil
}

func (b *Backend) renewBatch(ctx context.Context, part []renewal) (answer, error) {
	s, call := renewCall(part)
	return b.run(ctx, attempt(part[0].ttl), s, call)
}

// renewCall renews holds of one TTL that need the same script. Keys and ids are
// passed by reference but for the first, as those of one lock are.
func renewCall(part []renewal) (*script, []any) {
	s, keys := renewScript, make([]any, 0, len(part))
	args := append(make([]any, 0, len(part)+1), part[0].life())
	var used []any
	for i := range part {
		r := &part[i]
		switch {
		case r.shares:
			s, keys = renewAnyScript, append(keys, r.key.args(3)...)
		case i == 0:
			keys = append(keys, string(r.key))
		default:
			keys = append(keys, (*string)(&r.key))
		}
		args = append(args, &r.id)
		if r.used > 0 {
			used = append(used, i+1, r.used)
		}
	}
	return s, s.call(keys, append(args, used...)...)
}

// life is for how many ms from now a hold is kept, or the negative of the
// server's time until when.
func (r *renewal) life() int64 {
	if r.till > 0 {
		return -r.till
	}
	return millis(r.ttl)
}

// outcomes are the new expiries of n holds: 0 for one that is lost, negative
// if somebody waits.
func outcomes(a answer, n int) []int64 {
	out := slices.Repeat([]int64{a.int(1)}, n)
	for i := 2; i < len(a.values); i += 2 {
		out[a.int(i)-1] = a.int(i + 1)
	}
	return out
}
