package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// answerMargin is by how much an answer may be later than the last ones suggest, at
	// whatever distance. A busy machine may take so long to look at one that has come.
	answerMargin = 50 * time.Millisecond

	// connectTrips is how many round trips a connection takes: to dial, with TLS, to log
	// in, and to see whether the server has restarted.
	connectTrips = 6

	// pingPause is the least time between two pings that are in vain.
	pingPause = 100 * time.Millisecond

	// A node is slow if it takes slowFactor times as long as the slowest of those that
	// are needed, and slowMargin more.
	slowFactor, slowMargin = 2, 2 * time.Millisecond
)

// A node is one backend, what it can do, and how it is doing.
type node struct {
	backend.Backend
	register backend.TokenRegister // nil where all nodes are needed
	renewer  backend.Renewer       // these may be nil
	pinger   backend.Pinger

	made      time.Time
	trip      backend.RoundTrip
	pace      atomic.Int64 // ns that an answer takes, smoothed; 0: not known
	silent    atomic.Bool  // it did not answer the last request in time
	gone      atomic.Bool  // nor a ping after that
	answered  atomic.Int64 // since made: when it was sent what the node has answered
	pinging   atomic.Bool
	nextPing  atomic.Int64 // since made: not before
	votesFrom atomic.Int64 // since made: it has said that it does not vote before
	awaited   atomic.Bool  // it was logged that Lock waits until it votes
	rejoins   rejoins
	denied    backend.Denied
}

func newNode(b backend.Backend, votes bool) (*node, error) {
	if b == nil {
		return nil, backend.ErrInvalidConfig
	}
	n := &node{Backend: b, made: time.Now()}
	n.renewer, _ = b.(backend.Renewer)
	n.pinger, _ = b.(backend.Pinger)
	if votes {
		var ok bool
		if n.register, ok = b.(backend.TokenRegister); !ok {
			return nil, backend.ErrUnsupported
		}
	}
	return n, nil
}

// now is the time since the node was made, in ns: a step of the machine's clock does not move it.
func (n *node) now() int64 { return int64(time.Since(n.made)) }

// nodeAs returns node i as one that can do more.
func nodeAs[T any](b *Backend, i int) (T, error) {
	t, ok := b.nodes[i].Backend.(T)
	if !ok {
		return t, backend.Fail(backend.ErrUnsupported, fmt.Errorf("node %d, %T", i+1, b.nodes[i].Backend))
	}
	return t, nil
}

// allAs returns all nodes as such that can do more.
func allAs[T any](b *Backend) (all []T, err error) {
	for i := range b.nodes {
		t, err := nodeAs[T](b, i)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// answerLimit is how long a node may take to answer.
func answerLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 250*time.Millisecond), 2*time.Second)
}

// answerLimit is how long this node may take: not much longer than its last answers.
func (n *node) answerLimit(ttl time.Duration) time.Duration {
	most := answerLimit(ttl)
	if n.silent.Load() {
		return most
	}
	return n.usualLimit(most)
}

// pingLimit is how long this node may take to answer a ping, if it may take so long to answer a
// request. The ping may have to make a connection first, which takes some round trips.
func (n *node) pingLimit(answer time.Duration) time.Duration {
	return 2*answer + connectTrips*time.Duration(n.pace.Load())
}

// checkLimit is that for a node of which nobody knows whether it is gone. One that has not answered a
// request has no more time for that: who waits in its queue shall find out as soon as if it had.
func (n *node) checkLimit(ttl time.Duration) time.Duration {
	most := answerLimit(ttl)
	if n.gone.Load() {
		return n.pingLimit(most)
	}
	return n.pingLimit(n.usualLimit(most))
}

// usualLimit is how long the node may take by its last answers, and most at the most.
func (n *node) usualLimit(most time.Duration) time.Duration {
	return min(n.trip.Limit(0, most)+answerMargin, most)
}

// grace is how long to wait for the node's reply if enough others have replied.
func (n *node) grace() time.Duration {
	if n.silent.Load() {
		return 0
	}
	return n.answerLimit(0)
}

// mostToClose is how long Close waits at most for a node that others can do without: one that has not
// answered anything yet may be as far as one that is waited for.
const mostToClose = (connectTrips + 2) * 250 * time.Millisecond

// closeLimit is how long the node may take to close if enough others have. A request that Close ends takes its
// connection with it, so that what it may have got is given back on a new one, with a script that the server may
// not know.
func (n *node) closeLimit() time.Duration {
	switch pace := time.Duration(n.pace.Load()); {
	case n.silent.Load():
		return leaveLimit
	case pace == 0:
		return mostToClose
	default:
		return min(max(leaveLimit, n.pingLimit(n.usualLimit(time.Hour))), mostToClose)
	}
}

// limitClose ends the closing of the node after its closeLimit, or as soon as that is over for a node that turns out
// to be silent meanwhile. Of what the caller of Close has time for, some is left to end all else.
func (n *node) limitClose(closing context.Context, end context.CancelFunc) {
	defer end()
	began, all := time.Now(), timeLeft(closing, mostToClose+2*leaveLimit)
	most := max(all-2*leaveLimit, all/3)
	for {
		left := min(n.closeLimit(), most) - time.Since(began)
		if left <= 0 || !backend.Sleep(closing, min(left, leaveLimit)) {
			return
		}
	}
}

// closeWithin closes the node until closing ends. A node that does not return then is left behind when half of the
// time is over that ctx still has: it may be making a connection, which it cannot give up at once.
func (n *node) closeWithin(ctx, closing context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- n.Close(closing) }()
	select {
	case err := <-closed:
		return err
	case <-closing.Done():
	}
	left := time.NewTimer(timeLeft(ctx, time.Hour) / 2)
	defer left.Stop()
	select {
	case err := <-closed:
		return err
	case <-left.C:
		return backend.Fail(backend.ErrUnavailable, errOverdue)
	}
}

// timeLeft is what ctx still has by its deadline, but some moments at least, and most at the most.
func timeLeft(ctx context.Context, most time.Duration) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return most
	}
	return min(max(time.Until(at), answerMargin), most)
}

// observe notes that the node took so long to answer, or did not.
func (n *node) observe(took time.Duration, err error) {
	if !isAnswer(err) {
		n.silent.Store(true)
		return
	}
	n.answered.Store(n.now() - int64(took))
	silent, limit := n.silent.Swap(false), n.usualLimit(time.Hour)
	n.gone.Store(false) // in this order none is gone that is not silent, whatever a check notes meanwhile
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

// noteThere has a silent node pinged that has answered a question, if it took no longer than a request may: a
// client that only asks hears of its return by nothing else. The answer does not say that: a node may show locks and
// keep all waiting that may write.
func (n *node) noteThere(b *Backend, took time.Duration, err error) {
	if n.silent.Load() && isAnswer(err) && took <= n.usualLimit(time.Hour) {
		n.check(b, 0, func() {})
	}
}

// observeVote notes whether the node votes, if it has said so.
func (n *node) observeVote(err error) {
	if in, not := votesIn(err); not {
		n.votesFrom.Store(n.now() + int64(in))
	} else if isAnswer(err) {
		n.votesFrom.Store(0)
		n.awaited.Store(false)
	}
}

// isSpared reports that the node is sent no request, because it is silent and there are enough
// others: what it has to answer, or to be told again and again, shall not pile up. It is
// pinged instead.
func (b *Backend) isSpared(n *node) bool {
	return n.pinger != nil && n.silent.Load() && b.hasMajority()
}

// hasMajority reports whether the nodes that answer, and vote, are enough.
func (b *Backend) hasMajority() bool {
	live := 0
	for _, n := range b.nodes {
		if !n.silent.Load() && n.votesFrom.Load() <= n.now() {
			live++
		}
	}
	return live >= b.need
}

// isDue reports whether the node is silent, or has answered nothing for so long.
func (n *node) isDue(quiet time.Duration) bool {
	return n.silent.Load() || n.now()-n.answered.Load() >= int64(quiet)
}

// isAnsweredBeside reports whether another node than n has answered what was sent then or later.
func (b *Backend) isAnsweredBeside(n *node, sent time.Time) bool {
	return slices.ContainsFunc(b.nodes, func(o *node) bool { return o != n && o.answered.Load() >= int64(sent.Sub(o.made)) })
}

// answersBeside pings the other nodes at once, and reports whether one answers, or none is there
// that may.
func (b *Backend) answersBeside(ctx context.Context, n *node, ttl time.Duration) bool {
	asked := false
	var answered atomic.Bool
	var pings sync.WaitGroup
	for _, o := range b.nodes {
		if o == n || o.pinger == nil || o.silent.Load() {
			continue
		}
		asked = true
		pings.Go(func() {
			if took, err := o.ping(ctx, ttl); isAnswer(err) {
				o.observe(took, nil)
				answered.Store(true)
			}
		})
	}
	pings.Wait()
	return !asked || answered.Load()
}

// check pings the node, and once more if that is in vain, unless it is being done or both
// were in vain a moment ago. It is gone if another answers meanwhile: if none does, this process
// may have had no time to look. Check calls done when it is known whether the node is there.
func (n *node) check(b *Backend, ttl time.Duration, done func()) {
	if n.pinger == nil || n.now() < n.nextPing.Load() || !n.pinging.CompareAndSwap(false, true) {
		return
	}
	started := b.janitor.Go(func(ctx context.Context) {
		took, err := n.pingFor(ctx, n.checkLimit(ttl))
		known := true
		if !isAnswer(err) { // the connection may have broken
			var beside sync.WaitGroup
			beside.Go(func() { known = b.answersBeside(ctx, n, ttl) })
			took, err = n.pingFor(ctx, n.checkLimit(ttl))
			beside.Wait()
		}
		there := isAnswer(err)
		if !there {
			n.nextPing.Store(n.now() + int64(pingPause))
		}
		if there || known {
			n.gone.Store(!there)
			n.observe(took, err)
		}
		n.pinging.Store(false)
		done()
	})
	if !started {
		n.pinging.Store(false)
	}
}

// isBack reports whether a node that is spared answers again. The first ping may fail because
// the connection has broken.
func (n *node) isBack(ctx context.Context, ttl time.Duration) bool {
	for range 2 {
		if took, err := n.ping(ctx, ttl); isAnswer(err) {
			n.observe(took, nil)
			return true
		}
	}
	return false
}

// ping pings the node once.
func (n *node) ping(ctx context.Context, ttl time.Duration) (took time.Duration, err error) {
	return n.pingFor(ctx, n.pingLimit(n.answerLimit(ttl)))
}

// pingFor is ping, with so much time for the answer.
func (n *node) pingFor(ctx context.Context, limit time.Duration) (took time.Duration, err error) {
	ctx, cancel := backend.Bound(ctx, limit)
	defer cancel()
	sent := time.Now()
	_, err = n.pinger.Ping(ctx)
	return time.Since(sent), err
}

// isAway reports whether nobody should wait for node i: it is silent, or slow beside
// the others.
func (b *Backend) isAway(i int) bool {
	n := b.nodes[i]
	return n.silent.Load() || n.pace.Load() > int64(slowMargin) && n.pace.Load() > int64(slowMargin)+slowFactor*b.paceOfMajority()
}

// paceOfMajority is that of the slowest of the nodes that are needed.
func (b *Backend) paceOfMajority() int64 {
	all := make([]int64, len(b.nodes))
	for i, n := range b.nodes {
		all[i] = n.pace.Load()
	}
	slices.Sort(all)
	return all[b.need-1]
}
