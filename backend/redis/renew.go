package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// maxBatch is how many locks one script takes.
const maxBatch = 100

// batchSize is how many holds one script renews or releases. On a cluster, where a
// script may use the keys of one slot only, it is one.
func (b *Backend) batchSize() int {
	if b.cluster != nil {
		return 1
	}
	return maxBatch
}

// Renew implements backend.Renewer. Every batch is a request of its own: one
// that is late delays nobody but itself.
func (b *Backend) Renew(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var exclusive, others []*backend.Hold // an exclusive hold needs one key
	for _, h := range holds {
		if stateOf(h).shared.Load() {
			others = append(others, h)
		} else {
			exclusive = append(exclusive, h)
		}
	}
	var done sync.WaitGroup
	for _, same := range [][]*backend.Hold{exclusive, others} {
		for part := range slices.Chunk(same, b.batchSize()) {
			done.Go(func() { b.renewBatch(ctx, part, report) })
		}
	}
	done.Wait()
}

// renewBatch renews holds by one script.
func (b *Backend) renewBatch(ctx context.Context, part []*backend.Hold, report func(*backend.Hold, error)) {
	limit, exclusive := b.renewalTimeout(part[0].TTL), !stateOf(part[0]).shared.Load()
	a, expiries, err := b.extend(ctx, limit, renewCall(part, 0), len(part))
	if err != nil && redis.IsTryAgainError(err) && len(part) == 1 {
		a, expiries, err = b.renewMoving(ctx, limit, part[0])
	}
	for i, h := range part {
		if err != nil {
			report(h, fail(err))
			continue
		}
		report(h, renewed(h, exclusive, a, expiries[i]))
	}
}

// broken stands for the expiry of a hold that Break has ended.
const broken = 1

var errBroken = backend.Fail(backend.ErrLost, backend.ErrBroken)

var errDowngraded = errors.New("the hold was downgraded while it was renewed")

// renewed notes what the server said of one hold, which was asked about as an exclusive one or
// not. On a quorum a request to one node may come after all that follows it on the others: that an
// exclusive hold is not there says nothing of one that is shared by now.
func renewed(h *backend.Hold, exclusive bool, a answer, expiry int64) error {
	s := stateOf(h)
	switch expiry {
	case 0:
		if exclusive && s.shared.Load() {
			return fail(errDowngraded)
		}
		return backend.ErrLost
	case broken:
		return errBroken
	}
	granted := believed(between(a.int(0), max(expiry, -expiry)), h.TTL)
	if granted <= 0 { // no lease is over when it is renewed
		return fail(errGarbled)
	}
	if expiry < 0 {
		expiry = -expiry
		s.wanted()
	}
	h.Sent, h.Granted = a.sent, granted
	s.expiry.Store(expiry)
	s.setLease(a.sent, granted)
	return nil
}

// extend runs a renewal of n holds once, or past the connections that have broken while nobody
// used them. It returns their new expiries: 0 for one that is lost, negative if somebody waits.
func (b *Backend) extend(ctx context.Context, limit time.Duration, call []any, n int) (answer, []int64, error) {
	var again repeat
	a, err := b.run(ctx, limit, renewScript, call)
	for err != nil && ctx.Err() == nil && again.pause(b, err) == 0 {
		a, err = b.run(ctx, limit, renewScript, call)
	}
	if err != nil {
		return a, nil, err
	}
	expiries, err := readExpiries(a, n)
	return a, expiries, err
}

func readExpiries(a answer, n int) ([]int64, error) {
	if len(a.values) < 2 || len(a.values)%2 != 0 || a.int(0) <= 0 || a.int(1) <= 0 {
		return nil, errGarbled
	}
	expiries := slices.Repeat([]int64{a.int(1)}, n)
	for i := 2; i < len(a.values); i += 2 {
		which := a.int(i) - 1
		expiry, ok := a.integer(i + 1)
		if !ok || which < 0 || which >= int64(n) {
			return nil, errGarbled
		}
		expiries[which] = expiry
	}
	return expiries, nil
}

// renewalTimeout is how long a renewal may take. The caller says by its context how long,
// who knows whether the server is slow or silent: to ask one that is slow again would
// have it do the same work twice. Replicas have no longer than for a grant.
func (b *Backend) renewalTimeout(ttl time.Duration) time.Duration {
	if b.replicas > 0 {
		return replyTimeout(ttl)
	}
	return ttl
}

// renewCall renews holds of one TTL that need the same keys, for that TTL or, if until
// is not 0, until that time of the server in ms.
func renewCall(part []*backend.Hold, until int64) []any {
	each, life := 1, millis(part[0].TTL)
	if stateOf(part[0]).shared.Load() {
		each = 5
	}
	if until > 0 {
		life = -until
	}
	var keys []any
	args := []any{each, life}
	for _, h := range part {
		s := stateOf(h)
		keys, args = append(keys, s.key().args(each)...), append(args, s.id)
	}
	for i, h := range part {
		if used := stateOf(h).used.Load(); used > 0 {
			args = append(args, i+1, used)
		}
	}
	return renewScript.call(keys, args...)
}

// renewMoving renews a hold by the one key in which it stands by itself: while its slot moves, the
// others may be on another node. One that may have been downgraded is looked for in both keys.
func (b *Backend) renewMoving(ctx context.Context, limit time.Duration, h *backend.Hold) (a answer, expiries []int64, err error) {
	s := stateOf(h)
	key := string(s.key())
	var keys []string
	if h.Mode == backend.Exclusive {
		keys = append(keys, key)
	}
	if s.shared.Load() {
		keys = append(keys, key+suffixes[1])
	}
	for _, key := range keys {
		a, expiries, err = b.extend(ctx, limit, renewScript.call([]any{key}, 1, millis(h.TTL), s.id), 1)
		if err != nil || expiries[0] != 0 {
			break
		}
	}
	return a, expiries, err
}
