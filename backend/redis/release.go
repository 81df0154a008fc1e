package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A release is the end of one hold.
type release struct {
	hold     *backend.Hold
	state    *holdState
	began    time.Time
	repeated bool // an earlier request may have ended the hold
}

func newRelease(h *backend.Hold) release {
	return release{hold: h, state: stateOf(h), began: time.Now()}
}

// Release implements backend.Backend.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	r := newRelease(h)
	defer b.listener.removeHold(r.state)
	if r.state.canDrop() && b.drop(ctx, &r) {
		return nil
	}
	return b.releaseHold(ctx, &r)
}

// releaseHold ends a hold by the script that can end any. The listener forgets the hold
// after the reply, since the message of its grant may come as late as that.
func (b *Backend) releaseHold(ctx context.Context, r *release) error {
	limit := r.hold.TTL - time.Since(r.began)
	a, err := b.runUntilAnswered(ctx, limit, releaseScript, releaseCall([]release{*r}), r.noteError)
	return b.released(r, a, err)
}

// noteError notes the error of a request that is repeated: it may have been carried out.
func (r *release) noteError(err error) { r.repeated = r.repeated || err != nil && !isUntouched(err) }

// released returns what became of the hold, as the server says.
func (b *Backend) released(r *release, a answer, err error) error {
	if err != nil {
		r.state.doubted.Store(true)
		return err
	}
	b.checkLater(r.state.key(), a)
	switch status := a.status(); {
	case a.plain, r.repeated && status == "NOT_HELD" && time.Now().Before(r.state.leaseEnd()):
		return nil // or it was the first request that ended it
	case status == "NOT_HELD", status == "LEFT":
		return backend.ErrLost
	}
	return fail(errGarbled)
}

func releaseCall(part []release) []any {
	var keys, args []any
	for i := range part {
		s := part[i].state
		keys = append(keys, s.key().args(5)...)
		args = append(args, releaseArgs(s.id, s.doubted.Load(), s.used.Load())...)
	}
	return releaseScript.call(keys, args...)
}

// releaseArgs are the arguments by which a script ends what id has or waits for. tomb
// has the server refuse the id from now on. used is the last token of Transfer.
func releaseArgs(id string, tomb bool, used uint64) []any {
	args := []any{id, "0", ""}
	if tomb {
		args[1] = "1"
	}
	if used > 0 {
		args[2] = used
	}
	return args
}

// ReleaseAll implements backend.BatchReleaser.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := backend.BoundAll(ctx, holds)
	defer cancel()
	b.releaseAll(ctx, holds, report)
}

// maxReleases is how many requests are under way at a time where many holds end
// together.
const maxReleases = 64

// releaseAll ends holds with few requests. On a cluster, where a script may use the
// keys of one slot only, each hold has its own.
func (b *Backend) releaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	backend.ForEachPart(holds, b.batchSize(), maxReleases, func(part []*backend.Hold) { b.releaseBatch(ctx, part, report) })
}

// releaseBatch ends holds by one script. A hold that fails there is released by a
// request of its own, which says why.
func (b *Backend) releaseBatch(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	all, limit, repeated := make([]release, len(holds)), time.Duration(0), false
	for i, h := range holds {
		all[i], limit = newRelease(h), max(limit, h.TTL)
	}
	a, err := b.runUntilAnswered(ctx, limit, releaseScript, releaseCall(all), func(err error) {
		repeated = repeated || !isUntouched(err)
	})
	var again sync.WaitGroup
	for i := range all {
		r, own := &all[i], a
		r.repeated = repeated
		if len(all) > 1 {
			own = answer{sent: a.sent}
			own.read(a.at(i))
		}
		again.Go(func() {
			defer b.listener.removeHold(r.state)
			if err == nil && own.status() == "FAILED" {
				report(r.hold, b.releaseHold(ctx, r))
				return
			}
			report(r.hold, b.released(r, own, err))
		})
	}
	again.Wait()
}

// releaseRest gives back the holds that nobody has released. The error names those
// of which it is not known whether the server still has them.
func (b *Backend) releaseRest(ctx context.Context) error {
	var mu sync.Mutex
	var open []error
	b.releaseAll(ctx, b.listener.allHolds(), func(h *backend.Hold, err error) {
		if err != nil && !errors.Is(err, backend.ErrLost) {
			if errors.Is(err, backend.ErrClosed) { // by the program: the server still has it
				err = backend.Fail(backend.ErrUnavailable, err)
			}
			mu.Lock()
			defer mu.Unlock()
			open = append(open, fmt.Errorf("no answer to the release of %q: %w", h.Name, err))
		}
	})
	return backend.Join(open...)
}
