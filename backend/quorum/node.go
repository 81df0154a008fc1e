package quorum

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// leastLimit is the least time that a node has for an answer. A busy machine may
	// take so long to look at one that has come.
	leastLimit = 50 * time.Millisecond

	// between is the least time between two pings that are in vain.
	between = 100 * time.Millisecond

	// backlog is how many requests are left to a node that has not answered them, and
	// probes how many to one that is known to be silent.
	backlog, probes = 256, 4

	// A node is slow if it takes several times as long as the slowest of those that
	// are needed, and somewhat more.
	slowFactor, slowMore = 4, 2 * time.Millisecond
)

// pingOf returns what asks b whether it is there, at little cost; nil if there is nothing.
func pingOf(b backend.Backend) func(context.Context) error {
	switch p := b.(type) {
	case backend.Pinger:
		return func(ctx context.Context) error { _, err := p.Ping(ctx); return err }
	case interface{ Ping(context.Context) error }:
		return p.Ping
	}
	return nil
}

// A node is one backend, what it can do, and how it is doing.
type node struct {
	backend.Backend
	register   backend.TokenRegister // nil where all nodes are needed
	renewer    backend.Renewer       // these may be nil
	reenterer  backend.Reenterer
	downgrader backend.Downgrader
	expirer    backend.Expirer
	ping       func(context.Context) error

	trip       backend.RoundTrip
	pace       atomic.Int64 // ns that an answer takes, smoothed; 0: not known
	silent     atomic.Bool  // it did not answer the last request in time
	gone       atomic.Bool  // nor a ping after that
	unanswered atomic.Int64 // requests under way that do not wait for a lock
	pinging    atomic.Bool
	nextPing   atomic.Int64 // ns since 1970: not before
	rejoining  atomic.Bool  // a goroutine asks for holds that others have granted
}

func newNode(b backend.Backend, votes bool) (*node, error) {
	if b == nil {
		return nil, backend.ErrInvalidConfig
	}
	n := &node{Backend: b}
	n.renewer, _ = b.(backend.Renewer)
	n.reenterer, _ = b.(backend.Reenterer)
	n.downgrader, _ = b.(backend.Downgrader)
	n.expirer, _ = b.(backend.Expirer)
	n.ping = pingOf(b)
	if votes {
		var ok bool
		if n.register, ok = b.(backend.TokenRegister); !ok {
			return nil, backend.ErrUnsupported
		}
	}
	return n, nil
}

// limit is how long the node may take to answer.
func (n *node) limit(ttl time.Duration) time.Duration {
	most := limit(ttl)
	if n.silent.Load() {
		return most
	}
	return n.trip.Limit(min(leastLimit, most), most)
}

// soon is how long to wait for the node's word if others have given theirs.
func (n *node) soon() time.Duration {
	if n.silent.Load() {
		return 0
	}
	return n.limit(0)
}

// heard notes that the node took so long to answer, or did not.
func (n *node) heard(took time.Duration, err error) {
	if !isAnswer(err) {
		n.silent.Store(true)
		return
	}
	n.gone.Store(false)
	silent, limit := n.silent.Swap(false), n.trip.Limit(leastLimit, time.Hour)
	if took > limit {
		if !silent {
			return // of one outage one request tells
		}
		took = min(took, 2*limit)
	}
	took = max(took, 1)
	n.trip.Observe(took)
	if old := n.pace.Load(); old != 0 {
		took = time.Duration(old) + (took-time.Duration(old))/8
	}
	n.pace.Store(int64(took))
}

// isAnswer reports whether err, the outcome of a request, is the word of the node.
func isAnswer(err error) bool {
	var not *backend.NotReadyError
	return err == nil || errors.Is(err, backend.ErrHeld) || errors.As(err, &not) || kindOf(err) != backend.ErrUnavailable
}

// admit reports whether the node may be sent another request. It has to be
// followed by one call of answered. A silent node is pinged instead if it can be, and
// gets few requests otherwise, unless there are not enough others: what it has to
// answer, or to be told again and again, shall not pile up.
func (b *Backend) admit(n *node, ttl time.Duration) bool {
	most := int64(backlog)
	if n.silent.Load() && b.enough() {
		if n.ping != nil {
			n.check(b, ttl, func() {})
			return false
		}
		most = probes
	}
	if n.unanswered.Add(1) <= most {
		return true
	}
	n.answered()
	return false
}

func (n *node) answered() { n.unanswered.Add(-1) }

// enough reports whether the nodes that answer are enough.
func (b *Backend) enough() bool {
	live := 0
	for _, n := range b.nodes {
		if !n.silent.Load() {
			live++
		}
	}
	return live >= b.need
}

// check pings the node, unless that is being done or was in vain a moment ago. It
// tells when it is known whether the node is there.
func (n *node) check(b *Backend, ttl time.Duration, tell func()) {
	if n.ping == nil || time.Now().UnixNano() < n.nextPing.Load() || !n.pinging.CompareAndSwap(false, true) {
		return
	}
	done := b.workers.do(func() {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 2*n.limit(ttl))
		err := n.ping(ctx)
		cancel()
		if !isAnswer(err) {
			n.gone.Store(true)
			n.nextPing.Store(time.Now().Add(between).UnixNano())
		}
		n.heard(time.Since(sent), err)
		n.pinging.Store(false)
		tell()
	})
	if !done {
		n.pinging.Store(false)
	}
}

// away reports whether nobody should wait for node i: it is silent, or slow beside
// the others.
func (b *Backend) away(i int) bool {
	n := b.nodes[i]
	return n.silent.Load() || n.pace.Load() > int64(slowMore) && n.pace.Load() > int64(slowMore)+slowFactor*b.usualPace()
}

// usualPace is that of the slowest of the nodes that are needed.
func (b *Backend) usualPace() int64 {
	var space [8]int64
	all := space[:0]
	for _, n := range b.nodes {
		all = append(all, n.pace.Load())
	}
	slices.Sort(all)
	return all[b.need-1]
}
