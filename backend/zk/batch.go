package zk

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A transaction gives back so many holds, unless their names are long.
const (
	batchHolds = 64
	batchBytes = sendBuffer / 4
)

// batchesAtOnce is how many transactions of a session are under way at a time where many
// holds end together.
const batchesAtOnce = 8

// ReleaseAll implements backend.BatchReleaser.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit, of := time.Duration(0), make(map[*session][]*backend.Hold, 1)
	for _, h := range holds {
		s := h.State.(*held).session
		limit = max(limit, s.leaseTime())
		of[s] = append(of[s], h)
	}
	end := time.AfterFunc(limit, cancel)
	defer end.Stop()
	var all sync.WaitGroup
	for s, holds := range of {
		all.Go(func() { s.releaseAll(ctx, holds, report) })
	}
	all.Wait()
}

// releaseAll releases holds of s, with at most batchesAtOnce transactions under way. The
// limit is each session's own: a session that does not answer delays no other's holds.
func (s *session) releaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	var all sync.WaitGroup
	places := make(chan struct{}, batchesAtOnce)
	for _, batch := range batches(holds) {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			s.releaseBatch(batch)
			for _, h := range batch {
				report(h, h.State.(*held).outcome(ctx))
			}
		})
	}
	all.Wait()
}

// batches divides holds so that each part fits in one transaction.
func batches(holds []*backend.Hold) (all [][]*backend.Hold) {
	begin, size := 0, 0
	for i, h := range holds {
		path := len(h.State.(*held).dir) + guidLength + 64
		if size += 3 * path; i > begin && (i-begin == batchHolds || size > batchBytes) {
			all = append(all, holds[begin:i])
			begin, size = i, 3*path
		}
	}
	return append(all, holds[begin:])
}

// releaseBatch begins to release holds of s.
func (s *session) releaseBatch(holds []*backend.Hold) {
	var batch []*held
	for _, h := range holds {
		held := h.State.(*held)
		switch {
		case !held.begin():
		case !held.changing.TryLock(): // it is being downgraded
			held.finish()
		default:
			batch = append(batch, held)
		}
	}
	if !s.b.janitor.Go(func(context.Context) { s.giveBackAll(batch) }) {
		for _, h := range batch {
			h.changing.Unlock()
			h.done(backend.ErrClosed)
		}
	}
}

// giveBackAll deletes the nodes of holds in one transaction, and each by itself if
// that does not come about. The caller has locked their changing.
func (s *session) giveBackAll(batch []*held) {
	var ops []any
	for _, h := range batch {
		s.forget(h)
		h.removal = h.newRemoval()
		ops = append(ops, h.removal.ops()...)
	}
	err := errOver
	if len(batch) > 1 && !s.isOver() {
		sent := time.Now()
		if _, err = s.conn.Multi(ops...); err == nil {
			s.proved(sent)
		}
	}
	for _, h := range batch {
		h.removal.tried = err != nil && unclear(err)
		h.changing.Unlock()
		if err == nil {
			s.extend(h)
			h.done(nil)
		} else {
			h.finish()
		}
	}
}
