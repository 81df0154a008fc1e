package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// ReleaseAll implements backend.BatchReleaser.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	all, longest := make([]release, len(holds)), time.Duration(0)
	for i, h := range holds {
		all[i], longest = b.newRelease(h), max(longest, h.TTL)
	}
	ctx, cancel := backend.Bound(ctx, longest)
	defer cancel()
	b.releaseMany(ctx, all, func(i int, err error) { report(holds[i], err) })
}

// releaseMany reports by its number what became of each of many holds. A script takes
// as many as a renewal; on a cluster, where it may use the keys of one slot only, each
// hold has one to itself.
func (b *Backend) releaseMany(ctx context.Context, all []release, report func(int, error)) {
	size := batch
	if b.nodes != nil {
		size = 1
	}
	each((len(all)+size-1)/size, func(n int) {
		first := n * size
		part := all[first:min(first+size, len(all))]
		b.releaseTogether(ctx, part, func(i int, err error) { report(first+i, err) })
	})
}

// together is how many requests are under way at a time where many holds end together.
const together = 64

// each runs f for the numbers below n, many at a time.
func each(n int, f func(int)) {
	var next atomic.Int64
	var done sync.WaitGroup
	for range min(n, together) {
		done.Go(func() {
			for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	done.Wait()
}

func (b *Backend) releaseTogether(ctx context.Context, part []release, report func(int, error)) {
	one := func(i int) {
		defer part[i].end()
		report(i, part[i].insist(ctx))
	}
	if len(part) == 1 {
		one(0)
		return
	}
	limit, repeated := time.Duration(0), false
	for i := range part {
		limit = max(limit, part[i].ttl)
	}
	a, err := b.insist(ctx, limit, releaseScript, releaseAllCall(part), func(err error) {
		repeated = repeated || !untouched(err)
	})
	var again sync.WaitGroup
	for i := range part {
		r := &part[i]
		r.repeated = repeated
		its := answer{sent: a.sent}
		its.read(a.at(i))
		if err == nil && its.status() == "FAILED" {
			again.Go(func() { one(i) })
			continue
		}
		r.end()
		report(i, r.outcome(its, err))
	}
	again.Wait()
}

func releaseAllCall(part []release) []any {
	var keys, args []any
	for i := range part {
		s := part[i].state
		_, its := split(s.releaseCall(), 5)
		if len(its) == 2 {
			its = append(its, "")
		}
		keys, args = append(keys, s.key().args(5)...), append(args, its...)
	}
	return releaseScript.call(keys, args...)
}

// split takes the keys and the arguments out of a command that runs a script.
func split(call []any, keys int) (names, args []any) {
	return call[keyAt : keyAt+keys], call[keyAt+keys:]
}
