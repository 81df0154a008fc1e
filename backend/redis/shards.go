package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// renewShards is Renew on a cluster. Each node is waited for by itself: one that
// is stuck holds up nobody's locks on another.
func (b *Backend) renewShards(ctx context.Context, all []renewal, report func(*backend.Hold, error)) {
	byNode := make(map[*pipeliner][]renewal)
	for _, r := range all {
		p, err := b.nodes.master(ctx, attempt(r.request.TTL), string(r.key()))
		if err != nil {
			report(r.hold, fail(err))
			continue
		}
		byNode[p] = append(byNode[p], r)
	}
	var done sync.WaitGroup
	for p, part := range byNode {
		done.Go(func() { b.renewShard(ctx, p, part, report) })
	}
	done.Wait()
}

// renewShard sends a script for each hold, all at once: they leave as pipelines.
func (b *Backend) renewShard(ctx context.Context, p *pipeliner, part []renewal, report func(*backend.Hold, error)) {
	sent := time.Now()
	posted, s := make([]*command, len(part)), b.script(renewScript)
	for i := range part {
		call := renewCall(part[i:i+1], 0)
		call[1] = s.sha
		posted[i] = p.post(ctx, b.patience(part[i].request.TTL), call, s.kind)
	}
	for i := range part {
		r := &part[i]
		a := answer{sent: sent}
		reply, err := posted[i].await(ctx, b.patience(r.request.TTL)-time.Since(sent))
		a.read(reply)
		if err != nil {
			a, err = b.renewElsewhere(ctx, r, err)
		}
		report(r.hold, r.heard(a, err))
	}
}

// heard takes the answer to the renewal of r alone.
func (r *renewal) heard(a answer, err error) error {
	var expiries []int64
	if err == nil {
		expiries, err = outcomes(a, 1)
	}
	if err != nil {
		return fail(err)
	}
	return r.renewed(a, expiries[0])
}

// renewElsewhere renews a hold that the node at which it was to be would not
// renew. An error that is not the node's word stays.
func (b *Backend) renewElsewhere(ctx context.Context, r *renewal, err error) (answer, error) {
	if _, said := replied(err); !said {
		b.nodes.reload()
		return answer{}, err
	}
	var a answer
	if !redis.IsTryAgainError(err) {
		a, err = b.run(ctx, b.patience(r.request.TTL), renewScript, renewCall([]renewal{*r}, 0))
	}
	if err != nil && redis.IsTryAgainError(err) { // of an old server only where it points to
		return b.run(ctx, b.patience(r.request.TTL), renewScript, r.movingCall())
	}
	return a, err
}

// movingCall renews a hold by the one key in which it stands by itself: others may be
// on another node.
func (r *renewal) movingCall() []any {
	key := string(r.key())
	if r.hold.Mode == backend.Shared {
		key += suffixes[1]
	}
	return renewScript.call([]any{key}, 1, millis(r.request.TTL), (*idArg)(r.state))
}
