package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errStuck says that others have the nodes that are missing, or that they came
	// too late.
	errStuck = errors.New("the votes are split")

	errTooLate = errors.New("the nodes took longer than the lease lasts")
)

// Acquire implements backend.Backend. Those who wait queue at one node, the same for
// all of them while it answers.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	if b.maxTTL > 0 && r.TTL > b.maxTTL {
		return nil, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("%v is more than the quorum's greatest TTL, %v", r.TTL, b.maxTTL))
	}
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	began, found, last := time.Now(), false, undecided
	pause := backend.Backoff{Min: 20 * time.Millisecond}
	for round := 0; ctx.Err() == nil; round++ {
		c := b.newCall(ctx, r, round)
		if r.Wait && (last == stuck || b.all() || b.contended.has(c.hash)) {
			c.phase = queueing
		}
		if !found {
			c.most = min(c.most, max(backend.FirstAnswer-time.Since(began), leastLimit))
		}
		bh, v, err := c.decide(ctx, found)
		last = v
		if bh != nil {
			return bh, nil
		}
		c.giveUp(ctx)
		found = found || c.found()
		rest := rand.N(c.patient)
		if v == short {
			ready, soon := c.readyIn()
			if kindOf(err) != backend.ErrUnavailable || !found && !soon && time.Since(began) > backend.FirstAnswer {
				return nil, err
			}
			if soon {
				r.Answered()
			}
			rest = min(pause.Next(), ready)
		}
		if !r.Wait || v == ended {
			return nil, err
		}
		b.sleep(ctx, rest)
	}
	return nil, backend.WaitEnded(ctx, found)
}

// sleep waits for d, or until ctx or the backend ends.
func (b *Backend) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-b.closing:
	}
}

// A phase says what a call waits for.
type phase uint8

const (
	// asking: all nodes were asked at once. Whether the lock is free is for the
	// front to say, and a majority decides.
	asking phase = iota

	// queueing: it waits in the queue of the front, and has asked nobody else.
	queueing

	// gathering: the front has granted, and it waits at the others for the rest.
	// Nobody else does, unless their front is another node.
	gathering
)

// A verdict is what has become of a call.
type verdict uint8

const (
	undecided verdict = iota // the answers to come decide
	won                      // enough nodes have granted
	held                     // the lock is not free, and the call must not wait
	stuck                    // others have the nodes that are missing
	short                    // too few nodes answer
	ended                    // nobody waits for it any more
)

// A call is one round of an Acquire. Its front is the first node that answers, in
// an order of the nodes that all clients have in common for a name. Who waits, waits
// there, so that the votes are not split among those who come at once.
type call struct {
	*hold
	hash     uint32
	phase    phase
	most     time.Duration // that a node has for an answer
	waited   bool          // the front has had it wait
	began    time.Time     // of the present phase
	beat     time.Time     // when to see whether the front is still there
	stuckFor time.Time     // since when only nodes are missing that others have; zero: not so
	patient  time.Duration // how long that may last
}

func (b *Backend) newCall(ctx context.Context, r backend.Request, round int) *call {
	c := &call{hold: b.newHold(ctx, r, round), hash: hashOf(r.Name), most: limit(r.TTL), began: time.Now()}
	c.patient = c.patience()
	return c
}

// decide asks the nodes and waits until the lock is held or will not be in this
// round. Found says that somebody had it in an earlier one.
func (c *call) decide(ctx context.Context, found bool) (*backend.Hold, verdict, error) {
	c.start()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		c.mu.Lock()
		v, again := c.step(time.Now())
		bh, err := c.conclude(v)
		answered := c.count().answered > 0
		c.mu.Unlock()
		if v != undecided {
			return bh, v, err
		}
		switch {
		case c.waited:
			c.r.Queued()
		case answered:
			c.r.Answered()
		}
		t.Reset(again)
		select {
		case <-c.changed:
		case <-t.C:
		case <-ctx.Done():
			return nil, ended, backend.WaitEnded(ctx, found || c.found())
		case <-c.b.closing:
			return nil, ended, backend.ErrClosed
		}
	}
}

// start asks all nodes, or leaves it to step to ask the front alone.
func (c *call) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.front = c.chooseFront()
	if c.phase == queueing {
		return
	}
	for i := range c.seats {
		c.ask(i, c.r.Wait && i == c.front)
	}
}

// chooseFront returns the first node in the order of the name that may grant the
// lock: one that answers as fast as the others, if there is one. Called with h.mu
// held.
func (c *call) chooseFront() int {
	second := -1
	for k := range c.seats {
		i := k
		if !c.b.all() {
			i = (k + int(c.hash%uint32(len(c.seats)))) % len(c.seats)
		}
		switch {
		case c.seats[i].isOut():
		case c.seats[i].is == granted || !c.b.away(i):
			return i
		case second < 0:
			second = i
		}
	}
	return second
}

// step goes on as far as the answers allow, and says when to look again if none
// comes. Called with h.mu held.
func (c *call) step(now time.Time) (verdict, time.Duration) {
	for {
		before, again := c.phase, c.expire(now)
		n := c.count()
		if n.dead > len(c.seats)-c.b.need {
			return short, 0
		}
		v := undecided
		switch before {
		case asking:
			v = c.stepAsking(n)
		case queueing:
			v = c.stepQueueing()
			again = min(again, c.watchFront(now))
		case gathering:
			var left time.Duration
			v, left = c.stepGathering(n, now)
			again = min(again, left)
		}
		if v != undecided || c.phase == before {
			return v, again
		}
	}
}

func (c *call) stepAsking(n tally) verdict {
	if s := &c.seats[c.front]; s.isOut() || c.b.nodes[c.front].silent.Load() {
		c.front = c.chooseFront()
	}
	switch is := c.seats[c.front].is; {
	case is == granted && n.bearing >= c.b.need:
		return won
	case is == granted && n.granted+n.coming < c.b.need:
		c.enter(gathering)
	case is != refused:
	case c.r.Wait:
		c.queue()
	case n.answered >= c.b.need:
		return held
	case n.coming == 0:
		return short
	}
	return undecided
}

// stepQueueing asks the front, and another node for it when it is away.
func (c *call) stepQueueing() verdict {
	s := &c.seats[c.front]
	if n := c.b.nodes[c.front]; s.is != granted && (s.isOut() || n.gone.Load() || s.is == asked && n.silent.Load()) {
		is := s.is
		s.is = failed
		next := c.chooseFront()
		switch {
		case next < 0:
			return short
		case is == asked && c.b.away(next): // no other is any better
			s.is = is
		default:
			c.drop(c.front)
			s.is = failed
			c.front = next
		}
		s = &c.seats[c.front]
	}
	switch {
	case s.is == granted:
		if !c.waited {
			c.b.contended.forget(c.hash)
		}
		c.enter(gathering)
	case s.is == unasked || s.is == refused && !s.asking:
		c.ask(c.front, true)
	}
	c.waited = c.waited || s.refused
	return undecided
}

// firstBeat and lastBeat bound how often who waits sees whether the front is still
// there: the less often the longer it has waited.
const firstBeat, lastBeat = 20 * time.Millisecond, 2 * time.Second

// watchFront has the front pinged when it is time to, and says when it is.
func (c *call) watchFront(now time.Time) time.Duration {
	n := c.b.nodes[c.front]
	if left := c.beat.Sub(now); left > 0 && !n.silent.Load() {
		return left
	}
	next := min(max(now.Sub(c.began)/8, firstBeat), lastBeat)
	if !c.beat.IsZero() {
		n.check(c.b, c.r.TTL, c.signal)
	}
	c.beat = now.Add(next)
	return next
}

// stepGathering waits for what is missing, for a while if others have it.
func (c *call) stepGathering(n tally, now time.Time) (verdict, time.Duration) {
	switch {
	case n.bearing >= c.b.need:
		return won, 0
	case n.granted == 0:
		return stuck, 0
	}
	c.gather()
	if n = c.count(); n.coming > 0 {
		c.stuckFor = time.Time{}
		return undecided, time.Minute
	}
	if c.stuckFor.IsZero() {
		c.stuckFor = now
	}
	left := c.patient - now.Sub(c.stuckFor)
	switch {
	case left > 0:
		return undecided, left
	case c.r.Wait:
		return stuck, 0
	}
	return held, 0
}

// enter begins a phase.
func (c *call) enter(p phase) { c.phase, c.began = p, time.Now() }

// queue gives up what others than the front may have granted: they are for who has
// the front.
func (c *call) queue() {
	c.enter(queueing)
	c.waited = true
	c.b.contended.keep(c.hash)
	for i := range c.seats {
		if s := &c.seats[i]; i != c.front && (s.asking || s.hold != nil) {
			c.drop(i)
		}
	}
}

// gather asks the nodes that have not been asked to let this call wait, one after
// the other where all are needed.
func (c *call) gather() {
	for i := range c.seats {
		s := &c.seats[i]
		if s.is == unasked || s.is == refused && !s.asking {
			c.ask(i, true)
		}
		if c.r.Wait && c.b.all() && s.is != granted {
			return
		}
	}
}

// expire takes for silent the nodes that have not answered as soon as they use to,
// which nobody waits for who can do without, and for failed those that have not in
// all the time there is. They may yet. It returns when there is something to expire.
func (c *call) expire(now time.Time) time.Duration {
	next := time.Minute
	for i := range c.seats {
		s, n := &c.seats[i], c.b.nodes[i]
		if s.is != asked && (s.is != unasked || !s.asking) {
			continue
		}
		since := now.Sub(s.since)
		if since >= c.most {
			s.is, s.err = failed, errOverdue
			continue
		}
		left := c.most - since
		if soon := n.limit(c.r.TTL) - since; soon <= 0 {
			n.silent.Store(true)
		} else {
			left = min(left, soon)
		}
		next = min(next, left)
	}
	return next
}

var errOverdue = backend.Fail(backend.ErrUnavailable, errors.New("no answer in time"))

// A tally counts the nodes by what they have said.
type tally struct {
	granted, bearing int
	answered         int // have granted or refused
	refused          int // have refused, whatever they have done since
	dead             int // will not grant, or do not answer
	coming           int // may answer, or grant, any moment
}

// count counts the nodes. One that is silent may answer any moment if there is no
// hope without it. Called with h.mu held.
func (h *hold) count() (n tally) {
	silent, refusing := 0, 0
	for i := range h.seats {
		s := &h.seats[i]
		if s.answered {
			n.answered++
		}
		if s.refused {
			n.refused++
		}
		switch {
		case s.bears:
			n.bearing++
			n.granted++
		case s.is == granted:
			n.granted++
			if h.token != 0 { // it is being told of that
				n.coming++
			}
		case s.is == asked && h.b.nodes[i].silent.Load():
			silent++
		case s.is == asked, s.is == unasked && s.asking:
			n.coming++
		case s.is == refused:
			refusing++
		case s.isOut():
			n.dead++
		}
	}
	if n.granted+n.coming+refusing < h.b.need {
		n.coming += silent
	}
	return n
}

// patience is how long a call waits for nodes that others have: several times what
// they take to answer, the longer the more often that was not enough.
func (c *call) patience() time.Duration {
	if c.b.all() && c.r.Wait {
		return c.r.TTL / 3
	}
	d := max(8*time.Duration(c.b.usualPace()), 10*time.Millisecond) << min(c.round, 6)
	return min(d/2+rand.N(d), time.Second, c.r.TTL/4)
}

// conclude turns a verdict into what Acquire returns. Called with h.mu held.
func (c *call) conclude(v verdict) (*backend.Hold, error) {
	switch v {
	case won:
		return c.win()
	case held:
		return nil, backend.ErrHeld
	case stuck:
		return nil, errStuck
	case short:
		return nil, c.failure()
	}
	return nil, nil
}

// win makes a hold of what the nodes have granted. The others may still join it.
func (c *call) win() (*backend.Hold, error) {
	l := c.lease()
	if !l.lasts() {
		if c.r.Wait {
			return nil, errStuck
		}
		return nil, backend.Fail(backend.ErrUnavailable, errTooLate)
	}
	c.won = true
	c.gather() // a newcomer may have had one of the others for a moment
	tells, atOnce, asking := false, false, false
	for i := range c.seats {
		asking = asking || c.seats[i].asking
		if h := c.seats[i].hold; h != nil {
			tells = tells || h.TellsWanted
			atOnce = atOnce || h.WantedAtOnce
		}
	}
	if asking {
		c.late = time.AfterFunc(limit(c.r.TTL), c.stop)
	} else {
		c.stop()
	}
	return &backend.Hold{
		Request:      c.r,
		Token:        c.token,
		Sent:         l.sent,
		Granted:      l.granted,
		RenewIn:      l.renewIn,
		TellsWanted:  tells,
		WantedAtOnce: atOnce,
		State:        c.hold,
	}, nil
}

// found reports that the nodes have said that somebody has the lock: the front, or
// another one and enough have answered.
func (c *call) found() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count()
	return c.waited || n.refused > 0 && n.answered >= c.b.need
}

// readyIn returns when the first of the nodes that do not vote yet will, and
// whether there is one.
func (c *call) readyIn() (in time.Duration, soon bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in = time.Second
	for i := range c.seats {
		if c.seats[i].is == unready {
			in, soon = min(in, max(c.seats[i].readyIn, time.Millisecond)), true
		}
	}
	return in, soon
}

// failure says why too few nodes have granted. An error that will not go away
// tells more than one that may. Called with h.mu held.
func (c *call) failure() error {
	kind := error(backend.ErrUnavailable)
	for i := range c.seats {
		if err := c.seats[i].err; c.seats[i].is == denied && kind == backend.ErrUnavailable {
			kind = kindOf(err)
		}
	}
	var why []error
	for i := range c.seats {
		if s := &c.seats[i]; s.isOut() && kindOf(s.err) == kind {
			why = append(why, fmt.Errorf("node %d: %w", i+1, s.err))
		}
	}
	return backend.Fail(kind, errors.Join(why...))
}
