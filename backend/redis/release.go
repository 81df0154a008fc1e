package redis

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A release is the end of one hold.
type release struct {
	b        *Backend
	state    *state
	began    time.Time
	ttl      time.Duration
	over     time.Time // when the lease is
	repeated bool      // an earlier request may have ended it
}

func (b *Backend) newRelease(h *backend.Hold) release {
	s := stateOf(h)
	return release{b: b, state: s, began: time.Now(), ttl: h.TTL, over: epoch.Add(time.Duration(s.over.Load()))}
}

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	r := b.newRelease(h)
	defer r.end()
	if r.state.mayDrop() && r.drop(ctx) {
		return nil
	}
	return r.insist(ctx)
}

// end comes after all requests: the message of a grant that a reply has told as
// well may come this late, and would be taken for one that nobody waits for.
func (r *release) end() { r.b.hub.discard(r.state) }

// insist releases the hold in full.
func (r *release) insist(ctx context.Context) error {
	s := r.state
	call := s.releaseCall()
	a, err := r.b.insist(ctx, r.ttl-time.Since(r.began), releaseScript, call, r.heard)
	return r.outcome(a, err)
}

// outcome is what became of the hold.
func (r *release) outcome(a answer, err error) error {
	if err != nil {
		r.state.note(doubted, true)
		return err
	}
	r.b.after(r.state.key(), a)
	switch status := a.status(); {
	case a.plain, r.repeated && status == "NOT_HELD" && time.Now().Before(r.over):
		return nil // or it was the first request that ended it
	case status == "NOT_HELD", status == "LEFT":
		return backend.ErrLost
	}
	return fail(errGarbled)
}

// heard takes the error of a request that is repeated: it may have been carried out.
func (r *release) heard(err error) { r.repeated = r.repeated || !untouched(err) }

func (s *state) releaseCall() []any {
	return releaseCall(s.key(), s.id(), s.is(doubted), s.used.Load())
}

// releaseCall ends what id has or waits for. tomb has the server refuse it from
// now on; used is as for renewal.add.
func releaseCall(k key, id string, tomb bool, used uint64) []any {
	mark := "0"
	if tomb {
		mark = "1"
	}
	if used > 0 {
		return releaseScript.of(k, 5, id, mark, used)
	}
	return releaseScript.of(k, 5, id, mark)
}

// insist runs a call that may be repeated until it is answered, for no
// longer than limit. again, if not nil, is told each error after which it is
// repeated.
func (b *Backend) insist(ctx context.Context, limit time.Duration, s *script, call []any, again func(error)) (answer, error) {
	end := time.Now().Add(limit)
	var pause backend.Backoff
	for {
		a, err := b.run(ctx, min(attempt(limit), max(time.Until(end), time.Millisecond)), s, call)
		switch left := time.Until(end); {
		case err == nil:
			return a, nil
		case ctx.Err() != nil, hopeless(err), left <= 0, !backend.Sleep(ctx, min(pause.Next(), left)):
			return a, fail(err)
		}
		if again != nil {
			again(err)
		}
	}
}

// giveUp ends in the background whatever an id has or waits for.
func (b *Backend) giveUp(k key, id string, tomb bool, ttl time.Duration) {
	b.janitor.Do(givingUp(ttl), b.ending(k, id, tomb, ttl))
}

// givingUp is how long that is tried.
func givingUp(ttl time.Duration) time.Duration { return ttl + 30*time.Second }

// ending is the job of giveUp. It has no token to tell: either nobody has had a hold
// under the id, or the release of that tells, and is repeated until it is answered.
func (b *Backend) ending(k key, id string, tomb bool, ttl time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		a, err := b.run(ctx, attempt(ttl), releaseScript, releaseCall(k, id, tomb, 0))
		if err != nil && !hopeless(err) {
			return err
		}
		b.after(k, a)
		return nil
	}
}
