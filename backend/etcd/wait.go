package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// wait returns nil when nothing that conflicts is ahead any more. It goes on
// while the server is away, as long as the session lasts, and calls queued when a
// key of another client is ahead.
func (p *place) wait(ctx context.Context, queued func()) error {
	s := p.session
	defer s.wait()()
	both, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	var pause backend.Backoff
	for p.ahead != "" {
		if p.behindOwn() {
			p.request.Answered()
		} else {
			queued()
		}
		switch err := p.follow(both); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.over() != nil:
			return s.over()
		case err == nil:
			pause.Reset()
		case errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrAuth):
			return err
		default:
			backend.Sleep(both, pause.Next())
		}
	}
	return nil
}

// follow waits until another key is ahead or none. What happened before the key
// was watched is found by looking.
func (p *place) follow(ctx context.Context) error {
	if p.crowded {
		return p.look(ctx)
	}
	watched := p.ahead
	l := p.session.lookout(watched)
	if l == nil {
		return backend.ErrClosed
	}
	defer l.leave()
	again := time.NewTicker(backend.Jitter(checkEvery))
	defer again.Stop()
	for {
		r := l.report(p.seen)
		if r.released.key != "" && r.released.created < p.revision {
			p.ahead, p.passed, p.told = "", r.released, true
			return nil
		}
		if !r.uncertain && !r.ended {
			select {
			case <-r.news:
				continue
			case <-again.C:
				if p.unchanged(ctx) {
					continue
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := p.look(ctx); err != nil {
			return err
		}
		if p.ahead != watched {
			return nil
		}
		if r.ended {
			return errWatchEnded
		}
	}
}

// look finds out what is ahead now, and that the own key is still there. The
// key goes with the lease, and then nothing below its revision means anything.
//
// One member says so by itself. If it lags behind it may still name what has gone,
// so a request that gets no further asks the cluster. But it never misses what is
// there: keys below the own one only go, and a lease does not end before its time.
func (p *place) look(ctx context.Context) error {
	watched := p.ahead
	err := p.ask(ctx, clientv3.WithSerializable())
	if errors.Is(err, errLags) || err == nil && p.ahead == watched {
		err = p.ask(ctx)
	}
	return err
}

func (p *place) ask(ctx context.Context, how ...clientv3.OpOption) error {
	ctx, cancel := p.session.exchange(ctx)
	defer cancel()
	get := func(key string, o ...clientv3.OpOption) clientv3.Op {
		return clientv3.OpGet(key, slices.Concat(o, how)...)
	}
	ops := []clientv3.Op{
		get(p.key.own, clientv3.WithKeysOnly()),
		get(p.key.rivals(), append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(p.revision-1))...),
	}
	if p.request.Mode == backend.Exclusive {
		ops = append(ops, get(p.key.formerWriters(), clientv3.WithPrefix(), clientv3.WithLimit(1)))
	}
	sent := time.Now()
	reply, err := p.session.backend.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return fail(err)
	}
	if reply.Header.Revision < p.revision {
		return errLags
	}
	if own := first(reply.Responses[0].GetResponseRange()); own == nil || own.CreateRevision != p.revision {
		return backend.Fail(backend.ErrLost, errKeyDeleted)
	}
	p.session.backend.answered(sent)
	p.proved, p.seen, p.crowded = sent, reply.Header.Revision, false
	p.behind(first(reply.Responses[1].GetResponseRange()))
	if len(ops) > 2 && p.ahead == "" {
		if former := first(reply.Responses[2].GetResponseRange()); former != nil {
			p.ahead = string(former.Key)
		}
	}
	return nil
}

// unchanged reports whether the own key and the one ahead are there, for two keys
// cost the server less than to search a queue.
func (p *place) unchanged(ctx context.Context) bool {
	ctx, cancel := p.session.exchange(ctx)
	defer cancel()
	reply, err := p.session.backend.client.Txn(ctx).Then(
		clientv3.OpGet(p.key.own, clientv3.WithKeysOnly(), clientv3.WithSerializable()),
		clientv3.OpGet(p.ahead, clientv3.WithSerializable()),
	).Commit()
	if err != nil {
		return false
	}
	own, ahead := first(reply.Responses[0].GetResponseRange()), first(reply.Responses[1].GetResponseRange())
	return own != nil && own.CreateRevision == p.revision && ahead != nil && !isReleased(ahead)
}
