package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Reenter implements backend.Reenterer. Nodes that do not count entries have
// nothing to say. Those that have not answered when it returns are told until they do, or
// until there is a later number: what a node that hangs is told shall not pile up.
func (b *Backend) Reenter(ctx context.Context, bh *backend.Hold, entries int, seq int64) error {
	h := bh.State.(*hold)
	counts, end := context.WithCancel(context.WithoutCancel(ctx))
	h.beginEntry(seq)
	defer h.leaveEntry(seq, end)
	count := func(ctx context.Context, i int, nh *backend.Hold) error {
		r, ok := b.nodes[i].Backend.(backend.Reenterer)
		if !ok || counts.Err() != nil {
			return nil
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(counts, cancel)()
		return r.Reenter(ctx, nh, entries, seq)
	}
	return h.change(ctx, count)
}

// change has a hold that goes on be changed at enough nodes. If too few do that, one that is about to join may
// make up for another.
func (h *hold) change(ctx context.Context, m message) error {
	parts := h.parts()
	err := h.broadcast(ctx, false, m)
	if err != nil && h.awaitPart(ctx, parts) {
		err = h.broadcast(ctx, false, m)
	}
	return err
}

// parts are what the nodes have granted.
func (h *hold) parts() []*backend.Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := make([]*backend.Hold, len(h.votes))
	for i := range h.votes {
		parts[i] = h.votes[i].hold
	}
	return parts
}

// awaitPart waits for a part that is none of those, for a moment, if a node is being asked for one, or
// is about to be: a hold that has just been won may get the last of them. It reports whether there is
// one, and the hold is not lost.
func (h *hold) awaitPart(ctx context.Context, parts []*backend.Hold) bool {
	late, over := time.After(h.joinLimit()), false
	for {
		changed := h.changed.wait()
		h.mu.Lock()
		joined, coming, lost := false, h.count().coming > 0 || h.joinTimer != nil, h.lost
		for i := range h.votes {
			v := &h.votes[i]
			joined = joined || v.counts && v.hold != parts[i]
		}
		h.mu.Unlock()
		if lost || joined || !coming || over {
			return joined && !lost
		}
		select {
		case <-changed:
		case <-late:
			over = true
		case <-ctx.Done():
			return false
		}
	}
}

// joinLimit is how long to wait for the nodes that have no part: as long as they usually take.
func (h *hold) joinLimit() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := leaveLimit
	for i := range h.votes {
		if h.votes[i].hold == nil {
			limit = max(limit, joinPause+h.b.nodes[i].answerLimit(h.request.TTL))
		}
	}
	return limit
}

// beginEntry ends what is left of the calls of Reenter before that of number seq.
func (h *hold) beginEntry(seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq >= h.lastEntry {
		h.lastEntry = seq
		h.endEntry()
	}
}

// leaveEntry is for a call of Reenter that returns. If it is not the last, nobody needs what
// is left of it.
func (h *hold) leaveEntry(seq int64, end context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq < h.lastEntry || h.over {
		end()
		return
	}
	h.endEntry = end
}

// Downgrade implements backend.Downgrader. A majority must confirm it, or let the hold in as a
// shared one meanwhile, and no node may be unable to do it: it would keep the readers out.
func (b *Backend) Downgrade(ctx context.Context, bh *backend.Hold) error {
	nodes, err := allAs[backend.Downgrader](b)
	if err != nil {
		return err
	}
	h := bh.State.(*hold)
	h.mu.Lock()
	h.request.Mode = backend.Shared // for nodes that join from now on
	h.mu.Unlock()
	return h.change(ctx, func(ctx context.Context, i int, nh *backend.Hold) error {
		err := nodes[i].Downgrade(ctx, nh)
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			if c := h.votes[i].hold; c != nil {
				c.Mode = backend.Shared
			}
		}
		return err
	})
}

// A message is what each node is told of its part of a hold.
type message func(ctx context.Context, node int, nh *backend.Hold) error

// broadcast sends m to every node, all at once, and returns when enough have confirmed
// it, or too few can. Releases says that m ends the hold.
func (h *hold) broadcast(ctx context.Context, releases bool, m message) error {
	c, parts := h.expect(releases, m)
	return c.send(ctx, parts)
}

func (c *confirmation) send(ctx context.Context, parts []part) error {
	for i := range parts {
		p := &parts[i]
		if !c.h.b.janitor.Go(func(lifetime context.Context) {
			p.receive(c.message(backend.WithValues(lifetime, ctx), p.node, &p.hold))
		}) {
			p.receive(backend.ErrClosed)
		}
	}
	return c.await(ctx)
}

// A confirmation waits for the nodes' replies to one message about a hold.
type confirmation struct {
	h        *hold
	message  message
	releases bool      // it ends the hold: a node that has confirmed it has no part any more
	until    time.Time // it has the hold end by itself then; zero: it does not
	joined   int       // nodes that have let the hold in since, as what the message makes it
	told     []bool    // by node: it has sent a reply that counts, or will
	done     int       // nodes that have confirmed it
	kept     int       // nodes that deny it, and keep their parts for long enough
	pending  int       // replies that will come
	replies  chan reply
}

type reply struct {
	node int
	err  error
	kept bool // the node denies it, and keeps its part for long enough
}

// A part is a copy of what one node has granted of the hold.
type part struct {
	*confirmation
	node int
	hold backend.Hold
}

// expect prepares for the replies to a message: the caller calls receive once for each part.
func (h *hold) expect(releases bool, m message) (*confirmation, []part) {
	c := &confirmation{h: h, message: m, releases: releases, told: make([]bool, len(h.votes)), replies: make(chan reply, len(h.votes))}
	parts := make([]part, 0, len(h.votes))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.votes {
		switch v := &h.votes[i]; {
		case v.released:
			c.done++
		case v.hold != nil:
			parts = append(parts, part{c, i, *v.hold})
			c.told[i] = true
			c.pending++
		}
	}
	return c, parts
}

// receive takes the reply of a node. What the node has not confirmed is repeated in the
// background while the lease lasts, and the end of a hold by one goroutine, also if its caller
// asks for that again and again. Of what a node denies no more than a few are repeated.
func (p *part) receive(err error) {
	p.record(err)
	p.replies <- reply{p.node, err, p.isKept(err)}
	if isFinal(err) || p.isRepeated() {
		return
	}
	p.h.b.janitor.Go(func(ctx context.Context) {
		ctx, cancel := backend.Bound(ctx, p.hold.TTL)
		defer cancel()
		p.h.b.nodes[p.node].denied.Retry(ctx, func(ctx context.Context) error {
			err := p.message(ctx, p.node, &p.hold)
			p.record(err)
			if isFinal(err) {
				return nil
			}
			return err
		})
	})
}

// isKept reports whether a node that denies to have its part end by itself keeps that for long
// enough: for its lease.
func (p *part) isKept(err error) bool {
	lasts := p.hold.Granted == 0 || !p.hold.Sent.Add(p.hold.Granted).Before(p.until)
	return errors.Is(err, backend.ErrAuth) && !p.until.IsZero() && lasts
}

// isRepeated reports whether the node is being told again and again to end its part. From now on it
// is.
func (p *part) isRepeated() (before bool) {
	if !p.releases && p.until.IsZero() {
		return false
	}
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	v := &p.h.votes[p.node]
	before, v.ending = v.ending, true
	return before
}

// record notes what a reply says of the node's vote.
func (p *part) record(err error) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	switch v := &p.h.votes[p.node]; {
	case errors.Is(err, backend.ErrLost):
		if v.hold != nil && v.hold.ID == p.hold.ID {
			p.h.clearVote(p.node, failed, err)
		}
	case err == nil && p.releases:
		v.released = true
	}
}

// await returns when enough nodes have confirmed the message, or too few can.
//
// The end of a hold is also waited for at its front, for a moment: whom the front
// refuses takes the lock to be held. It is done for others, too, if enough nodes
// either had no part of the hold or have confirmed it, and the rest do not answer. Where
// some refuse, a node that may turn out to have no part is waited for.
func (c *confirmation) await(ctx context.Context) error {
	var failures []error
	var late <-chan time.Time
	front := c.releases // the reply of the front is missing
	for {
		changed := c.h.changed.wait()
		none, open := 0, 0
		if c.releases {
			none, open = c.h.uninvolved()
		} else {
			c.joined = c.countJoined()
		}
		enough := c.confirmed()+none >= c.h.b.need
		switch {
		case c.confirmed() >= c.h.b.need && !front,
			c.done+c.joined+c.kept+c.pending+none+open < c.h.b.need,
			c.pending == 0 && (enough || open == 0):
			return c.outcome(enough, failures)
		case late != nil:
		case enough:
			late = time.After(c.h.b.nodes[c.h.front].grace())
		case c.pending == 0:
			late = time.After(leaveLimit)
		}
		select {
		case r := <-c.replies:
			c.pending--
			front = front && r.node != c.h.front
			switch {
			case r.err == nil:
				c.done++
			case r.kept:
				c.kept++
				failures = append(failures, r.err)
			case errors.Is(r.err, backend.ErrLost):
				c.told[r.node] = false
			default:
				failures = append(failures, r.err)
			}
		case <-changed: // a request that was under way has ended
		case <-late:
			return c.outcome(enough, failures)
		case <-ctx.Done():
			if c.confirmed() >= c.h.b.need {
				return nil
			}
			return backend.WaitEnded(ctx, false)
		}
	}
}

// confirmed is how many nodes will do as they are told. Those that deny it and keep their parts do
// so for long enough, but for longer than they are told: they count beside one that has confirmed it.
func (c *confirmation) confirmed() int {
	if c.done == 0 {
		return c.joined
	}
	return c.done + c.joined + c.kept
}

// countJoined is how many nodes have let a hold in that goes on, and were not told the message. What a
// hold that is lost gets after that is of no use.
func (c *confirmation) countJoined() (n int) {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if c.h.lost {
		return 0
	}
	for i := range c.h.votes {
		if v := &c.h.votes[i]; v.hold != nil && v.counts && !c.told[i] {
			n++
		}
	}
	return n
}

// outcome says what has become of a message that is not waited for any more. Enough says
// that enough nodes have confirmed it, or have no part of the hold.
func (c *confirmation) outcome(enough bool, failures []error) error {
	switch why := errors.Join(failures...); {
	case c.done+c.joined+c.pending+len(failures) < c.h.b.need:
		return backend.ErrLost
	case enough:
		return nil
	default:
		return backend.Fail(kindOf(why), why)
	}
}
