package zk

import (
	"cmp"
	"context"
	"errors"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// Downgrade implements backend.Downgrader: it replaces the writer's node by a reader's.
// That has the same sequence number and rank, so that it stays ahead of all waiters.
func (b *Backend) Downgrade(ctx context.Context, h *backend.Hold) error {
	return b.do(ctx, h.State.(*hold).downgrade)
}

func (h *hold) downgrade() error {
	h.nodeMu.Lock()
	defer h.nodeMu.Unlock()
	s := h.session
	from, to := h.path, h.dir+"/"+h.position.readerName()
	if !s.startReplacing(h) {
		return lossError(cmp.Or(s.endCause(), h.removalCause(s.broken())))
	}
	var err error
	if from != to {
		err = s.retry(func() error { return s.replaceNode(h, from, to) })
	}
	switch {
	case errors.Is(err, errSessionEnded), err == nil && !s.endReplacing(h, to):
		return lossError(cmp.Or(s.endCause(), errDisconnected))
	case errors.Is(err, gozk.ErrNoNode):
		s.removeHold(h)
		return lossError(h.removalCause(s.broken()))
	case err != nil:
		s.endReplacing(h, from)
	}
	return classify(err)
}

// replaceNode replaces the node in one transaction. It returns ErrNoNode if the node is
// gone and not replaced by an earlier try. The transaction writes to the old node first:
// then those who watch it get an event that lets nobody in.
func (s *session) replaceNode(h *hold, from, to string) error {
	d := deletion{session: s, path: from, before: []any{
		&gozk.SetDataRequest{Path: from, Version: -1},
		&gozk.CreateRequest{Path: to, Data: nodeData(h.position.rank, h.Label, h.Token), Acl: s.backend.opts.ACL, Flags: gozk.FlagEphemeral},
	}}
	if h.waited {
		d.signal = signalLast
	}
	sent := time.Now()
	err := d.send()
	if errors.Is(err, gozk.ErrNoNode) {
		_, _, err = s.client.Get(to)
	}
	if err == nil {
		s.extendLease(sent)
	}
	return err
}

// startReplacing notes that the end of h's node is no loss for now. It reports false if
// h is not held any more.
func (s *session) startReplacing(h *hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.isReplacing = s.holds[h.path] == h
	return h.isReplacing
}

// endReplacing sets the path of h's node. It reports false if h was lost meanwhile.
func (s *session) endReplacing(h *hold, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holds[h.path] == h
	h.isWatched, h.isReplacing = false, false
	if held && path != h.path {
		s.dropHold(h)
		h.path = path
		s.holds[path] = h
	}
	return held
}
