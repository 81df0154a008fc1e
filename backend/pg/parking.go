package pg

import (
	"context"
	"time"
)

// A parking is a wait in the server's queue, on a session that does nothing
// else. It has one of the slots.
type parking struct {
	session *session
	call    *call
	ttl     time.Duration
	over    bool // call has its answer
}

// parkAtOnce makes an idle session wait, once the call is sent. It returns nil
// if there is none, or no slot.
func (a *ask) parkAtOnce() *parking {
	b := a.backend
	select {
	case b.slots <- struct{}{}:
	default:
		return nil
	}
	b.mu.Lock()
	s := b.takeIdle(a.ttl)
	b.mu.Unlock()
	if s == nil {
		<-b.slots
		return nil
	}
	return a.parkOn(s)
}

// parkOn makes s wait, once the call is sent.
func (a *ask) parkOn(s *session) *parking {
	return &parking{session: s, call: newCall(lockOp(a.shared), a.place.key), ttl: a.ttl}
}

// runs sends the call and waits for the answer. It reports false if ctx
// or the client ends before.
func (p *parking) runs(ctx context.Context) bool {
	p.session.drive(ctx, p.call)
	select {
	case <-p.call.done:
		p.over = true
	case <-ctx.Done():
	case <-p.session.backend.ctx.Done():
	}
	return p.over
}

// hears waits for the answer, and reports false if ctx ends before.
func (p *parking) hears(ctx context.Context) bool {
	if p.over {
		return true
	}
	select {
	case <-p.call.done:
		p.over = true
	case <-ctx.Done():
	}
	return p.over
}

// isOld reports whether the wait was so long that little is left of the lease,
// which counts from when it began.
func (p *parking) isOld() bool { return isOld(p.call.sent, p.ttl) }

func isOld(sent time.Time, ttl time.Duration) bool { return time.Since(sent) > ttl/4 }
