package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend. The listener forgets the hold after the reply, since the
// message of its grant may come as late as that.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	s, end := stateOf(h), time.Now().Add(h.TTL)
	defer b.listener.removeHold(s)
	repeated := false // an earlier request may have ended the hold
	noteError := func(err error) { repeated = repeated || err != nil && !isUntouched(err) }
	if s.canDrop() {
		a, err := b.drop(ctx, s)
		if err == nil && a.isZero() {
			return nil
		}
		noteError(err)
	}
	call := releaseCall(s.key(), s.id, s.doubted.Load(), s.used.Load())
	a, err := b.runUntilAnswered(ctx, time.Until(end), releaseScript, call, noteError)
	if err != nil {
		s.doubted.Store(true)
		return err
	}
	b.checkLater(s.key(), a)
	switch status := a.status(); {
	case a.plain, repeated && status == "NOT_HELD" && time.Now().Before(s.leaseEnd()):
		return nil // or it was the first request that ended it
	case status == "NOT_HELD", status == "LEFT":
		return backend.ErrLost
	}
	return fail(errGarbled)
}

// releaseCall ends what id has or waits for. tomb has the server refuse the id from now on.
// used is the last token of Transfer.
func releaseCall(k key, id string, tomb bool, used uint64) []any {
	refused := 0
	if tomb {
		refused = 1
	}
	return releaseScript.callWith(k, 5, id, refused, used)
}

// maxReleases is how many holds are released at a time where many end together. Their
// requests share pipelines, and those that can a script.
const maxReleases = 2 * maxBatch

// ReleaseAll implements backend.BatchReleaser.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := backend.BoundAll(ctx, holds)
	defer cancel()
	backend.ForEachPart(holds, 1, maxReleases, func(one []*backend.Hold) { report(one[0], b.Release(ctx, one[0])) })
}

// releaseRest gives back the holds that nobody has released. The error names those
// of which it is not known whether the server still has them.
func (b *Backend) releaseRest(ctx context.Context) error {
	var mu sync.Mutex
	var open []error
	b.ReleaseAll(ctx, b.listener.allHolds(), func(h *backend.Hold, err error) {
		if err != nil && !errors.Is(err, backend.ErrLost) {
			mu.Lock()
			defer mu.Unlock()
			open = append(open, fmt.Errorf("no answer to the release of %q: %w", h.Name, err))
		}
	})
	return backend.Join(open...)
}
