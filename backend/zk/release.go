package zk

import (
	"context"
	"errors"
	"slices"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// Release implements backend.Backend. It returns within the session timeout, which
// stands for the TTL.
func (b *Backend) Release(ctx context.Context, h *backend.Hold) error {
	own := h.State.(*hold)
	own.release()
	ctx, cancel := backend.Bound(ctx, own.session.grantedTimeout())
	defer cancel()
	return backend.At(b.servers, own.awaitRelease(ctx))
}

// release starts the release of h, unless somebody has.
func (h *hold) release() {
	if !h.releasing.Swap(true) {
		h.startRelease()
	}
}

// startRelease deletes the hold's node in the background, for as long as that takes.
func (h *hold) startRelease() {
	ok := h.session.backend.janitor.Go(func(context.Context) {
		h.nodeMu.Lock()
		defer h.nodeMu.Unlock()
		h.setReleased(h.deleteNode())
		if isRefusal(h.err) {
			h.deletedLater.Store(h.session.deleteLater(&h.deletion, pathBound(h.dir)))
		}
	})
	if !ok {
		h.setReleased(backend.ErrClosed)
	}
}

func (h *hold) setReleased(err error) {
	h.err = err
	close(h.released)
	if err == nil || errors.Is(err, backend.ErrLost) { // else the node may stay
		h.session.backend.unreserve(h.session, pathBound(h.dir))
	}
}

// awaitRelease returns the outcome of the release, even if ctx is done as well.
func (h *hold) awaitRelease(ctx context.Context) error {
	select {
	case <-h.released:
	case <-ctx.Done():
		if !isClosed(h.released) {
			return backend.WaitEnded(ctx, false)
		}
	}
	if h.deletedLater.Load() {
		return nil
	}
	return h.err
}

// deleteNode is called with h.nodeMu held.
func (h *hold) deleteNode() error {
	s := h.session
	s.removeHold(h)
	if !h.deletion.tried {
		if s.ctx.Err() != nil {
			return lossError(s.endCause())
		}
		h.deletion = h.newDeletion()
	}
	switch err := s.retry(h.deletion.try); {
	case errors.Is(err, errSessionEnded) && errors.Is(s.endCause(), backend.ErrClosed):
		return backend.ErrClosed
	case errors.Is(err, errSessionEnded):
		return nil // the session ended after the release had begun
	case errors.Is(err, gozk.ErrNoNode):
		return lossError(h.removalCause(s.broken()))
	case err != nil:
		return classify(err)
	}
	s.noteRelease(h)
	return nil
}

// newDeletion returns the deletion of h's node. Only a writer that has waited has
// others behind it that wait for a signal.
func (h *hold) newDeletion() deletion {
	d := deletion{session: h.session, path: h.path}
	if h.waited && h.isExclusive() && h.path == h.dir+"/"+h.position.name {
		d.signal = signalFirst
	}
	return d
}

// lossError is the error of a call about a hold that was lost for that cause.
func lossError(cause error) error {
	if errors.Is(cause, backend.ErrClosed) {
		return backend.ErrClosed
	}
	return backend.Fail(backend.ErrLost, cause)
}

// The bounds of a batch of holds that one transaction releases, and of the batches of a
// session that are under way at a time.
const (
	maxBatchHolds = 64
	maxBatchBytes = sendBuffer / 4
	maxBatches    = 8
)

// ReleaseAll implements backend.BatchReleaser.
func (b *Backend) ReleaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	backend.ForEachGroup(holds, sessionOf, func(s *session, group []*backend.Hold) { s.releaseAll(ctx, group, report) })
}

func sessionOf(h *backend.Hold) *session { return h.State.(*hold).session }

func (s *session) releaseAll(ctx context.Context, holds []*backend.Hold, report func(*backend.Hold, error)) {
	ctx, cancel := backend.Bound(ctx, s.grantedTimeout())
	defer cancel()
	backend.ForEachPart(splitBatches(holds), 1, maxBatches, func(batch [][]*backend.Hold) {
		s.startBatch(batch[0])
		for _, h := range batch[0] {
			report(h, h.State.(*hold).awaitRelease(ctx))
		}
	})
}

// splitBatches divides holds so that each batch fits in one transaction.
func splitBatches(holds []*backend.Hold) (all [][]*backend.Hold) {
	begin, size := 0, 0
	for i, h := range holds {
		path := len(h.State.(*hold).dir) + guidLength + 64
		if size += 3 * path; i > begin && (i-begin == maxBatchHolds || size > maxBatchBytes) {
			all = append(all, holds[begin:i])
			begin, size = i, 3*path
		}
	}
	return append(all, holds[begin:])
}

// startBatch deletes the nodes of holds in the background.
func (s *session) startBatch(holds []*backend.Hold) {
	var batch []*hold
	for _, h := range holds {
		if own := h.State.(*hold); !own.releasing.Swap(true) {
			batch = append(batch, own)
		}
	}
	if !s.backend.janitor.Go(func(context.Context) { s.deleteNodes(batch) }) {
		for _, h := range batch {
			h.setReleased(backend.ErrClosed)
		}
	}
}

// deleteNodes deletes the nodes of batch in one transaction, or one by one if that
// fails.
func (s *session) deleteNodes(batch []*hold) {
	var ops []any
	for _, h := range batch {
		h.nodeMu.Lock()
		s.removeHold(h)
		h.deletion = h.newDeletion()
		ops = append(ops, h.deletion.ops()...)
	}
	err := errSessionEnded
	if len(batch) > 1 && s.ctx.Err() == nil {
		sent := time.Now()
		if _, err = s.client.Multi(ops...); err == nil {
			s.extendLease(sent)
		}
	}
	for _, h := range batch {
		h.deletion.tried = isUnclear(err)
		h.nodeMu.Unlock()
		if err == nil {
			s.noteRelease(h)
			h.setReleased(nil)
		} else {
			h.startRelease()
		}
	}
}

// A deletion deletes a node. It is tried until its outcome is clear.
type deletion struct {
	session *session
	path    string
	before  []any // the operations that the transaction begins with
	signal  signalOrder
	tried   bool
}

func (d *deletion) try() error {
	sent := time.Now()
	err := d.send()
	if err == nil {
		d.session.extendLease(sent)
	}
	if d.tried && errors.Is(err, gozk.ErrNoNode) {
		return nil // an earlier try has deleted it
	}
	d.tried = true
	return err
}

// isRefusal reports whether the server has refused to delete a node. After any other error the
// node is gone, or goes with its session.
func isRefusal(err error) bool {
	return err != nil && !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrClosed)
}

// deleteLater deletes a node that the server has refused to delete, once it may be: somebody
// may change an ACL. Until then, or the end of the session, the node is in the way. It has
// taken up size. deleteLater reports whether it has deleted the node.
func (s *session) deleteLater(d *deletion, size int) bool {
	backend.Retry(s.ctx, func(context.Context) error { return ignoreNoNode(s.retry(d.try)) })
	if s.ctx.Err() != nil {
		return false
	}
	s.backend.unreserve(s, size)
	return true
}

func (d *deletion) send() error {
	if d.signal == noSignal && d.before == nil {
		return d.session.client.Delete(d.path, -1)
	}
	_, err := d.session.client.Multi(d.ops()...)
	if err == nil || d.signal == noSignal || isUnclear(err) || errors.Is(err, gozk.ErrNoNode) || errors.Is(err, gozk.ErrBadVersion) {
		return err
	}
	d.signal = noSignal // somebody has created the signal, or a quota forbids it
	return d.send()
}

// ops returns the operations of the transaction.
func (d *deletion) ops() []any {
	del := &gozk.DeleteRequest{Path: d.path, Version: -1}
	signal := []any{
		&gozk.CreateRequest{Path: signalOf(d.path), Acl: d.session.backend.opts.ACL, Flags: gozk.FlagEphemeral},
		&gozk.DeleteRequest{Path: signalOf(d.path), Version: -1},
	}
	switch d.signal {
	case signalFirst:
		return slices.Concat(d.before, signal, []any{del})
	case signalLast:
		return slices.Concat(d.before, []any{del}, signal)
	}
	return slices.Concat(d.before, []any{del})
}

// signalOf is the path of the signal of a writer's node: a node that is created and
// deleted in the transaction that deletes the writer's node. Nobody sees it but those
// who watch the path.
func signalOf(path string) string { return path + signalSuffix }

const signalSuffix = "-free"

// A signalOrder says when a signal is sent.
type signalOrder uint8

const (
	noSignal    signalOrder = iota
	signalFirst             // before the end of a hold: whoever is next has the lock
	signalLast              // after another end of a node: it only removes the watches of the signal
)
