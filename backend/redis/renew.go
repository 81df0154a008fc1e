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
	hold *backend.Hold
	*state
}

// Renew implements backend.Renewer. Every batch is a request of its own: one
// that is late holds up nobody but itself.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	all := make([]renewal, len(holds))
	for i, h := range holds {
		all[i] = renewal{h, stateOf(h)}
	}
	if b.nodes != nil {
		b.renewShards(ctx, all, report)
		return
	}
	var sure, maybe []renewal // to be exclusive: they need one key
	for _, r := range all {
		if r.is(shares) {
			maybe = append(maybe, r)
		} else {
			sure = append(sure, r)
		}
	}
	var done sync.WaitGroup
	for _, same := range [][]renewal{sure, maybe} {
		for part := range slices.Chunk(same, batch) {
			done.Go(func() { b.renewTogether(ctx, part, report) })
		}
	}
	done.Wait()
}

// renewTogether renews holds by one script.
func (b *Backend) renewTogether(ctx context.Context, part []renewal, report func(*backend.Hold, error)) {
	a, expiries, err := b.renewBatch(ctx, b.patience(part[0].request.TTL), part, 0)
	if err != nil {
		for _, r := range part {
			report(r.hold, fail(err))
		}
		return
	}
	for i, expiry := range expiries {
		report(part[i].hold, part[i].renewed(a, expiry))
	}
}

// renewed takes what the server said of one hold.
func (r *renewal) renewed(a answer, expiry int64) error {
	if expiry == 0 {
		return backend.ErrLost
	}
	granted := lasting(a.int(0), max(expiry, -expiry))
	if granted <= 0 { // no lease is over when it is renewed
		return fail(errGarbled)
	}
	if expiry < 0 {
		expiry = -expiry
		r.wanted()
	}
	r.hold.Sent, r.hold.Granted = a.sent, granted
	r.expiry.Store(expiry)
	r.lasts(r.hold.Sent, r.hold.Granted)
	return nil
}

// renewBatch also returns the new expiries, as outcomes does.
func (b *Backend) renewBatch(ctx context.Context, limit time.Duration, part []renewal, till int64) (answer, []int64, error) {
	a, err := b.run(ctx, limit, renewScript, renewCall(part, till))
	if err != nil {
		return a, nil, err
	}
	expiries, err := outcomes(a, len(part))
	return a, expiries, err
}

// patience is how long a renewal may take. It is for the caller to say, by its context,
// who knows whether the server is slow or silent: to ask one that is slow again would
// have it do the same work twice. Replicas have no longer than for a grant.
func (b *Backend) patience(ttl time.Duration) time.Duration {
	if b.replicas > 0 {
		return attempt(ttl)
	}
	return ttl
}

// renewCall renews holds of one TTL that need the same keys, for that TTL or, if
// it is not 0, until a time of the server in ms.
func renewCall(part []renewal, till int64) []any {
	each := 1
	if part[0].is(shares) {
		each = 3
	}
	keys := each * len(part)
	call := append(make([]any, 0, keyAt+keys+2+len(part)), "evalsha", renewScript.sha, keys)
	for i := range part {
		switch r := &part[i]; {
		case each > 1:
			call = append(call, r.key().args(each)...)
		case i == 0:
			call = append(call, string(r.key())) // by which a cluster client finds the node
		default:
			call = append(call, (*keyArg)(r.state))
		}
	}
	life := millis(part[0].request.TTL)
	if till > 0 {
		life = -till
	}
	call = append(call, each, life)
	for i := range part {
		call = append(call, (*idArg)(part[i].state))
	}
	for i := range part {
		if used := part[i].used.Load(); used > 0 {
			call = append(call, i+1, used)
		}
	}
	return call
}

// outcomes are the new expiries of n holds: 0 for one that is lost, negative
// if somebody waits.
func outcomes(a answer, n int) ([]int64, error) {
	if len(a.values) < 2 || len(a.values)%2 != 0 || a.int(0) <= 0 || a.int(1) <= 0 {
		return nil, errGarbled
	}
	out := slices.Repeat([]int64{a.int(1)}, n)
	for i := 2; i < len(a.values); i += 2 {
		which := a.int(i) - 1
		expiry, ok := a.integer(i + 1)
		if !ok || which < 0 || which >= int64(n) {
			return nil, errGarbled
		}
		out[which] = expiry
	}
	return out, nil
}
