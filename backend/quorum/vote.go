package quorum

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A vote is what one node says to a request for the lock.
type vote struct {
	query    *query // the last one sent; nil: none
	state    voteState
	err      error         // why it is not granted
	readyIn  time.Duration // when the node votes, if it does not yet
	answered bool          // the node has granted or refused
	refused  bool          // it has refused, once at least
	behind   bool          // it has refused because a writer waits there
	hold     *backend.Hold
	token    uint64    // by which the node knows the hold
	telling  uint64    // the one that it has been told last
	counts   bool      // granted, and the node knows the hold by its token
	renewing bool      // a renewal is under way
	returned int       // parts that the node is told to take back, and may have
	keeps    time.Time // until when it may have the last of them
	unsure   time.Time // until when it may have a part because its answer to a request was lost
	checked  bool      // a node that has not answered is asked whether it does
	ending   bool      // the node is told again and again to end its part
	released bool
}

type voteState uint8

const (
	unasked  voteState = iota
	asked              // no answer yet
	refused            // somebody else has it
	granted            // though it counts only once the node knows the hold by its token
	notReady           // the node does not vote yet
	failed             // the node did not answer; it may yet
	denied             // the node will not grant it
)

// isOut reports that nothing is to be expected of the node in this round.
func (v *vote) isOut() bool { return v.state >= notReady }

// isAsking reports that a query is under way.
func (v *vote) isAsking() bool { return v.query != nil && !v.query.over }

// isMissing reports that the node has no part, is not asked for one, and may well grant it.
func (v *vote) isMissing() bool { return !v.isAsking() && (v.state == unasked || v.state == refused) }

// isAwaited reports that the node has been asked and has not said who has the lock.
func (v *vote) isAwaited() bool { return v.state == asked || v.state == unasked && v.isAsking() }

// timeLeft returns how long node i has to answer, and takes it for silent if that is over and
// another has answered what was sent after that: until then it may well be this process that
// has no time to look, so the others are pinged. A node that has answered, and lets the request
// queue, is not late. Called with h.mu held.
func (h *hold) timeLeft(i int, now time.Time) time.Duration {
	q, n := h.votes[i].query, h.b.nodes[i]
	late := q.since.Add(n.answerLimit(h.request.TTL))
	left := late.Sub(now)
	switch {
	case left > 0 || q.heard || n.silent.Load():
	case h.b.isAnsweredBeside(n, late):
		n.silent.Store(true)
	default:
		h.pingOthers(n, 0, h.notify)
		return firstPing
	}
	return left
}

// pingOthers pings the nodes but n that have not answered for so long, and calls done after each.
func (h *hold) pingOthers(n *node, quiet time.Duration, done func()) {
	for _, other := range h.b.nodes {
		if other != n && other.isDue(quiet) {
			other.check(h.b, h.request.TTL, done)
		}
	}
}

// clearVote forgets what node i has granted. Called with h.mu held.
func (h *hold) clearVote(i int, state voteState, err error) {
	v := &h.votes[i]
	v.state, v.err, v.hold, v.counts, v.token, v.telling, v.renewing = state, err, nil, false, 0, 0, false
	h.checkLease(err)
}

// checkLease ends a hold that has too few votes, or whose last ones have run out for want of a
// renewal. A hold for which that is so for a moment is lost, whatever the nodes grant it after that,
// and its holder is told at once, whoever has found that out. What is left may end before what the
// holder was told: then it is told, and checkLease looks again. Called with h.mu held.
func (h *hold) checkLease(cause error) {
	if h.lost || !h.held {
		return
	}
	if h.countVotes() >= h.b.need {
		if left := time.Until(deadline(h.lease())); left > 0 {
			if h.shorten() {
				time.AfterFunc(left, func() {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.checkLease(cause)
				})
			}
			return
		}
	}
	h.lost = true
	if !h.over {
		h.b.janitor.Go(func(context.Context) { h.request.Lost(cause) })
	}
}

// shorten tells the holder of what is left of the hold, if that ends before what a renewal has told it
// last, and reports whether it does. It has the hold renewed in time, if that can be. Called with h.mu
// held, with enough votes.
func (h *hold) shorten() bool {
	last := h.lease()
	if h.over || !deadline(last).Before(h.believed) {
		return false
	}
	h.request.Shortened(last.Sent, last.Granted)
	return true
}

// countVotes is how many nodes count for the hold. Called with h.mu held.
func (h *hold) countVotes() (n int) {
	for i := range h.votes {
		if h.votes[i].counts {
			n++
		}
	}
	return n
}

// A query is one request to one node for the lock. As its observer it hears of what the
// node has granted. The mutex of its hold guards the fields from since on.
type query struct {
	h       *hold
	node    int
	request backend.Request
	ctx     context.Context
	cancel  context.CancelFunc // ends it, if it waits at the node

	since   time.Time // when it was sent, or first answered
	heard   bool      // the node has answered it, and may yet grant or refuse
	queued  bool      // the node has put it in its queue
	useless bool      // its grant is of no use
	lost    error     // why its grant is none any more, by the node's own word
	over    bool

	wasSilent bool // the node was, as it was sent
}

// lastSeq counts the requests to nodes, of all backends: clients may share
// nodes between them.
var lastSeq atomic.Uint64

// newQuery makes the next request to node i. Each has an ID of its own. One that
// does not wait for the lock outlives the call: its answer is worth having even
// if nobody needs it any more. Called with h.mu held.
func (h *hold) newQuery(i int, wait bool) *query {
	q := &query{h: h, node: i, request: h.request, ctx: context.WithoutCancel(h.waiting), cancel: func() {}, since: time.Now()}
	if wait {
		q.ctx, q.cancel = context.WithCancel(h.waiting)
	}
	q.ctx = backend.WithProgress(q.ctx, q.answeredInPart)
	q.request.ID.Seq, q.request.Wait, q.request.Observer = lastSeq.Add(1), wait, q
	q.wasSilent = h.b.nodes[i].silent.Load()
	h.votes[i].query, h.votes[i].state = q, asked
	return q
}

// ask asks node i for the lock in the background, unless it is being asked. Called with
// h.mu held.
func (h *hold) ask(i int, wait bool) {
	v := &h.votes[i]
	if v.isAsking() || h.over {
		return
	}
	q := h.newQuery(i, wait)
	if !h.b.janitor.Go(func(context.Context) { q.send() }) {
		q.over, v.state, v.err = true, denied, backend.ErrClosed
	}
}

// joinPause is how long after the lock was won a node is asked again that had refused. It may
// have had the release of the last hold late, or somebody else's request for a moment. A hold
// that ends as soon asks for nothing that has to be taken back.
const joinPause = 20 * time.Millisecond

// joinLater has the nodes asked that are missing, in a moment. Called with h.mu held.
func (h *hold) joinLater() {
	if h.joinTimer == nil && !h.over {
		h.joinTimer = time.AfterFunc(joinPause, h.askMissing)
	}
}

// askMissing asks the nodes that are missing to let this hold wait, unless that has ended.
func (h *hold) askMissing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.notify()
	h.joinTimer = nil
	if h.lost || h.waiting.Err() != nil {
		return
	}
	for i := range h.votes {
		if h.votes[i].isMissing() {
			h.ask(i, true)
		}
	}
}

// send sends a query and takes the answer.
func (q *query) send() {
	h, n := q.h, q.h.b.nodes[q.node]
	if h.b.isSpared(n) {
		n.check(h.b, h.request.TTL, func() {})
		q.receive(nil, errSpared)
		return
	}
	var nh *backend.Hold
	var err error
	if n.register == nil {
		nh, err = n.Acquire(q.ctx, q.request)
	} else {
		nh, err = n.register.Vote(q.ctx, q.request, h.ballot())
	}
	q.observe(err)
	q.receive(nh, err)
}

func (h *hold) ballot() backend.Ballot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return backend.Ballot{Token: h.propose(), Rejoin: h.b.rejoin}
}

// observe notes what the outcome of the query says of the node.
func (q *query) observe(err error) {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	if q.ctx.Err() == nil {
		q.hear(err)
		q.h.b.nodes[q.node].observeVote(err)
	}
}

// hear notes how long the node took to answer first: what comes after that has taken the
// time of a subscription, or in the queue. Called with h.mu held.
func (q *query) hear(err error) {
	if q.heard {
		return
	}
	q.h.b.nodes[q.node].observe(time.Since(q.since), err)
	if isAnswer(err) {
		q.heard, q.since, q.h.heard = true, time.Now(), true
	}
}

// answeredInPart has the node, which has answered and is asked more, take as long for that as for a first answer.
func (q *query) answeredInPart() {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	if q.ctx.Err() == nil && !q.heard {
		q.h.b.nodes[q.node].observe(time.Since(q.since), nil)
		q.since = time.Now()
	}
}

// Answered says that the node has answered, and is about to have the request wait.
func (q *query) Answered() {
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	q.hear(nil)
	q.h.notify() // from now on others may be late
}

// Lost implements backend.Observer: the node says that its grant is over.
func (q *query) Lost(cause error) {
	h := q.h
	h.mu.Lock()
	defer h.mu.Unlock()
	q.lost = backend.Fail(backend.ErrLost, cause)
	if v := &h.votes[q.node]; v.hold != nil && v.query == q {
		h.clearVote(q.node, failed, q.lost)
	}
	h.notify()
}

// Queued implements backend.Observer: the request waits at the node.
func (q *query) Queued() {
	h := q.h
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &h.votes[q.node]
	if v.query != q || q.queued || v.state != asked && v.state != failed {
		return
	}
	q.queued, v.state, v.answered, v.refused = true, refused, true, true
	q.hear(nil)
	h.notify()
}

// Wanted implements backend.Observer. Behind what an older query has been granted, and gives back, another of
// the same hold may wait.
func (q *query) Wanted() {
	q.h.mu.Lock()
	isLast := q.h.votes[q.node].query == q
	q.h.mu.Unlock()
	if !isLast {
		return
	}
	q.h.b.contended.add(hashOf(q.h.request.Name))
	q.h.request.Wanted()
}

// receive takes the answer of a node to a query. Readers that have no part there because a writer waits hear
// of that from nobody else.
func (q *query) receive(nh *backend.Hold, err error) {
	h := q.h
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.notify()
	v := &h.votes[q.node]
	q.over = true
	if q.isUnanswered(err) {
		v.unsure = time.Now().Add(h.request.TTL)
	}
	q.cancel()
	unwanted := h.over || h.lost || q.useless || q.lost != nil
	if err == nil && (unwanted || nh.Mode != h.request.Mode) {
		h.releaseVote(q.node, nh)
		unwanted, v.err = true, nil
	}
	switch {
	case q.lost != nil:
		h.loseVote(q.node, q.lost)
	case err == nil && unwanted, q.useless:
		v.state = unasked
	case err == nil:
		h.accept(q.node, nh)
	default:
		v.refuse(err)
	}
	if h.held && v.state == refused && v.behind {
		h.b.janitor.Go(func(context.Context) { q.Wanted() })
	}
	switch {
	case h.held && h.over:
		h.checkVote(q.node)
	case h.held && v.isMissing():
		h.joinLater()
	}
}

// isUnanswered reports that the node may have granted although err, the outcome of the query, does not
// say so. A node that had answered before the query was ended is being told of that. Called with h.mu held.
func (q *query) isUnanswered(err error) bool {
	return !isAnswer(err) && err != errSpared && !(q.heard && q.ctx.Err() != nil)
}

// loseVote notes that the grant of node i was over before it arrived. Whoever asks for the lock asks
// that node again. A hold does so with a renewal, and one that was broken there never does: it would
// go on with a part that Break has ended. Called with h.mu held.
func (h *hold) loseVote(i int, lost error) {
	v := &h.votes[i]
	v.state, v.err = unasked, lost
	if h.held || errors.Is(lost, backend.ErrBroken) {
		v.state = failed
	}
}

// refuse notes why there is no grant.
func (v *vote) refuse(err error) {
	v.err, v.behind = err, errors.Is(err, backend.ErrBehindWriter)
	in, not := votesIn(err)
	switch {
	case errors.Is(err, backend.ErrHeld):
		v.state, v.answered, v.refused = refused, true, true
	case not:
		v.state, v.readyIn = notReady, in
	case kindOf(err) != backend.ErrUnavailable:
		v.state = denied
	default:
		v.state = failed
	}
}

// accept notes a grant. Called with h.mu held.
func (h *hold) accept(i int, nh *backend.Hold) {
	v := &h.votes[i]
	v.state, v.hold, v.err, v.answered, v.token = granted, nh, nil, true, nh.Token
	h.acceptToken(i)
	if h.held && nh.RenewIn > 0 {
		h.renewLater(i, nh)
	}
}

// acceptToken takes account of the token that node i offers by now. Called with h.mu held.
func (h *hold) acceptToken(i int) {
	if h.held {
		h.confirmToken(i)
	} else {
		h.chooseToken()
	}
}

// dropVote gives up what node i has granted or may grant. Called with h.mu held.
func (h *hold) dropVote(i int) {
	v := &h.votes[i]
	if v.hold != nil {
		h.releaseVote(i, v.hold)
	}
	h.clearVote(i, unasked, nil)
	if v.query != nil {
		v.query.useless = true
		v.query.cancel()
	}
}

// A tally counts the nodes by what they have said.
type tally struct {
	granted, counting int
	answered          int // have granted or refused
	refused           int // have refused, whatever they have done since
	out               int // will not grant, or do not answer
	coming            int // may answer, or grant, any moment
	silent            int // have been asked, and take longer than they use to
}

// count counts the nodes. One that is silent may answer any moment if there is no
// hope without it. Called with h.mu held.
func (h *hold) count() (n tally) {
	refusing := 0
	for i := range h.votes {
		v := &h.votes[i]
		if v.answered {
			n.answered++
		}
		if v.refused {
			n.refused++
		}
		switch {
		case v.counts:
			n.counting++
			n.granted++
		case v.state == granted:
			n.granted++
			if h.token != 0 { // it is being told of that
				n.coming++
			}
		case v.state == asked && h.b.nodes[i].silent.Load():
			n.silent++
		case v.isAwaited():
			n.coming++
		case v.state == refused:
			refusing++
		case v.isOut():
			n.out++
		}
	}
	if n.granted+n.coming+refusing < h.b.need {
		n.coming += n.silent
	}
	return n
}
