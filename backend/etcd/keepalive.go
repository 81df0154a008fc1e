package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// A renewal is one request to keep a lease alive. All who want it at the same
// time share it.
type renewal struct {
	done chan struct{}
	err  error // set before done is closed
}

// renewAll renews the lease once for all holds, and looks whether their keys are
// there. A lease that was renewed just before, for other holds, is as good.
func (s *session) renewAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	err := s.over()
	if err == nil && s.age() > s.granted/6 {
		err = s.renew(ctx)
	}
	if err != nil {
		for _, h := range holds {
			report(h, err)
		}
		return
	}
	sent := s.lastSent()
	for group := range slices.Chunk(holds, maxParts) {
		stand, err := s.standing(ctx, group)
		for i, h := range group {
			switch {
			case err != nil:
				report(h, err)
			case !stand[i]:
				report(h, backend.Fail(backend.ErrLost, errKeyDeleted))
			default:
				h.Sent, h.Granted = sent, s.granted
				report(h, nil)
			}
		}
	}
}

// standing reports which of the holds still have their keys: somebody may have
// deleted one by hand, and then the lock is another's although the lease lives.
func (s *session) standing(ctx context.Context, holds []*backend.Hold) ([]bool, error) {
	ctx, cancel := s.exchange(ctx)
	defer cancel()
	ops := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		ops[i] = h.State.(*hold).find()
	}
	reply, err := s.backend.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, s.failed(err)
	}
	stand := make([]bool, len(holds))
	for i, h := range holds {
		stand[i] = h.State.(*hold).found(reply.Responses[i])
	}
	return stand, nil
}

// renew keeps the lease alive, or joins whoever is about to.
func (s *session) renew(ctx context.Context) error {
	r, err := s.startRenewal()
	if err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
}

func (s *session) startRenewal() (*renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewal != nil {
		return s.renewal, nil
	}
	r := &renewal{done: make(chan struct{})}
	if !s.backend.janitor.Go(func(context.Context) { s.sendRenewal(r) }) {
		return nil, backend.ErrClosed
	}
	s.renewal = r
	return r, nil
}

func (s *session) sendRenewal(r *renewal) {
	sent := time.Now()
	r.err = s.keepAlive()
	s.mu.Lock()
	if r.err == nil {
		s.sent = sent
	}
	s.renewal = nil
	s.mu.Unlock()
	close(r.done)
}

// keepAlive sends one request for the lease. The client library's own
// KeepAliveOnce repeats it without a pause while the server is away.
func (s *session) keepAlive() error {
	ctx, cancel := backend.Bound(s.ctx, max(min(s.left()/2, mostLimit), 10*time.Millisecond))
	defer cancel()
	sent := time.Now()
	leases := pb.NewLeaseClient(s.backend.client.ActiveConnection())
	stream, err := leases.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return fail(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil {
		return fail(err)
	}
	reply, err := stream.Recv()
	if err == nil {
		s.backend.answered(sent)
	}
	if err == nil && reply.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
		s.end(err)
	}
	return fail(err)
}

// keep renews the lease while anybody waits, because only holds are renewed
// from outside, and ends the session when the lease may have run out.
func (s *session) keep() {
	pause := backend.Backoff{Min: s.granted / 50, Max: s.granted / 10}
	var retry time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if s.left() <= 0 {
			s.end(errNotRenewed)
			return
		}
		if due := s.due(retry); due > 0 {
			timer.Reset(min(due, s.left()))
		} else if s.renew(s.ctx) == nil {
			pause.Reset()
			continue
		} else {
			retry = time.Now().Add(pause.Next())
			continue
		}
		select {
		case <-timer.C:
		case <-s.nudge:
		case <-s.ctx.Done():
			return
		}
	}
}

// due is how long the session's own next renewal can wait.
func (s *session) due(retry time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		return s.granted
	}
	return max(time.Until(s.sent.Add(s.granted/3)), time.Until(retry))
}

// wait says that somebody waits, until the function that it returns is called.
func (s *session) wait() (done func()) {
	s.mu.Lock()
	s.waiting++
	s.mu.Unlock()
	select {
	case s.nudge <- struct{}{}:
	default:
	}
	return func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}
}

// freshen renews the lease if less than need is left of it, and begins to when
// a third has passed, for sessions that are used often and never for long.
func (s *session) freshen(ctx context.Context, need time.Duration) error {
	age := s.age()
	switch {
	case s.granted-age < need:
		return s.renew(ctx)
	case age > s.granted/3:
		_, err := s.startRenewal()
		return err
	}
	return nil
}

func (s *session) lastSent() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// age is the time since the last good renewal was sent, by the clock that has
// moved on further: the monotonic one stands still while the machine sleeps.
func (s *session) age() time.Duration {
	sent, now := s.lastSent(), time.Now()
	return max(now.Sub(sent), now.Round(0).Sub(sent.Round(0)))
}

// left is how long the lease can be counted on.
func (s *session) left() time.Duration {
	return s.granted - backend.Margin(s.granted) - s.age()
}
