package protocol

// A subscription is how messages of the server reach a client.
type subscription int

const (
	works  subscription = iota
	silent              // the server believes that it works
	aside               // on a replica: it works, and the server does not count it
	gone
)

// counted says whether the server knows of it.
func (s subscription) counted() bool { return s == works || s == silent }

// hears says whether messages come through.
func (s subscription) hears() bool { return s == works || s == aside }

// A message is what the server publishes to a client.
type message struct {
	id
	token, at, expiry int64
	poll              bool
	forged            bool // by somebody who can guess ids, and prove none
}

// A client asks for the lock, again and again. It does one thing at a time, as
// the goroutines of a process that queue before it do together.
type client struct {
	*World
	number int
	drift  float64 // of its clock
	ids    int

	crashed bool
	asleep  int64 // until when it does not run
	subscription
	watches bool // looks after a lock that it handed over
	try     *try
	holds   *hold        // what it believes in
	reached map[id]int64 // the last token that was handed on under an ID

	forgotten int64 // since when the server does not know that it waits; 0: it knows
	mistaken  int64 // since when it believes in a hold that Break has taken away; 0: it does not
}

// clock is the client's own.
func (c *client) clock() int64 { return c.now + int64(float64(c.now)*c.drift) }

// later runs do in d, or when the client runs again; never once it has crashed.
func (c *client) later(d int64, do func()) {
	c.after(d, func() { c.run(do) })
}

func (c *client) run(do func()) {
	switch {
	case c.crashed:
	case c.asleep > c.now:
		c.after(c.asleep-c.now, func() { c.run(do) })
	default:
		do()
	}
}

// ask sends a request. The answer comes to then; what got lost, or takes longer
// than the client's patience, to lost.
func (c *client) ask(do func(*server) reply, then func(reply), lost func()) {
	answered := false
	if !c.loses() {
		c.after(c.delay(), func() {
			r := do(c.server)
			c.observe()
			if c.loses() {
				return
			}
			c.later(c.delay(), func() {
				if !answered {
					answered = true
					then(r)
				}
			})
		})
	}
	c.later(c.Patience, func() {
		if !answered {
			answered = true
			lost()
		}
	})
}

// insist repeats a request until it is answered.
func (c *client) insist(do func(*server) reply, then func(reply)) {
	c.ask(do, then, func() { c.insist(do, then) })
}

func (c *client) publish(m message) {
	c.overhear(m)
	if c.subscription.hears() && !c.loses() {
		c.later(c.slow(max(c.Slow, c.Late)), func() { c.hear(m) })
	}
}

// hear judges a message by the attempt that is under way.
func (c *client) hear(m message) {
	t := c.try
	mine := t != nil && t.id == m.id
	switch {
	case m.forged && !c.without(Proof):
	case m.poll:
		if mine && t.queued {
			t.heartbeat()
		}
	case mine && t.queued:
		t.message(m)
	case mine:
		t.early = &m // ahead of the reply that says that it is queued
	case c.holds != nil && c.holds.id == m.id:
	case !c.without(GiveBack):
		c.end(m.id, false) // most are just late, and there is nothing to refuse
	}
}

// giveUp makes sure that i neither holds nor waits, and never will.
func (c *client) giveUp(i id) { c.end(i, true) }

// end makes sure that i neither holds nor waits. It tells how far tokens were
// handed on under it, also if that hold is over: this may be the first to
// arrive of all that is sent to end it.
func (c *client) end(i id, bury bool) {
	high := c.reached[i]
	c.insist(func(s *server) reply { return s.release(i, high, bury) }, c.look)
}

// look is the releaser's watch.
func (c *client) look(r reply) {
	if r.waiting == 0 || c.watches {
		return
	}
	c.watches = true
	c.later(c.handOver()+5*millisecond, func() {
		if c.without(Watch) {
			c.watches = false
			return
		}
		c.insist((*server).check, func(r reply) {
			c.watches = false
			if r.rest <= c.handOver() {
				c.look(r)
			}
		})
	})
}

// A try is one wait for the lock.
type try struct {
	*client
	id
	shared    bool
	rank      int64
	ambiguous bool // a request got no answer: it may have been carried out
	queued    bool
	sent      int64 // when the request left that the server answered at the time told
	told      int64
	early     *message
	polls     int // counts them, so that a timer knows that it is outdated
}

func (c *client) lock(shared bool) {
	c.try = &try{client: c, shared: shared}
	c.try.enter(0)
	if c.chance(c.Cancel) {
		t := c.try
		c.later(c.upTo(c.TTL), t.cancel)
	}
}

// enter joins the queue, with an old rank if it has one. A request under the old
// ID that is still on its way must not take the lock for nobody.
func (t *try) enter(rank int64) {
	if t.ambiguous && !t.without(FreshID|Abandon) {
		t.giveUp(t.id)
		t.ambiguous = false
	}
	if !t.without(FreshID) || t.id.client == 0 {
		t.ids++
		t.id = id{client: t.number, n: t.ids, shared: t.shared}
	}
	t.rank, t.queued, t.early = rank, false, nil
	t.request(false)
}

// request asks for the lock, or whether it is still queued.
func (t *try) request(heartbeat bool) {
	i, sent, rank := t.id, t.clock(), t.rank
	current := func() bool { return t.client.try == t && t.id == i }
	t.ask(func(s *server) reply { return s.acquire(i, rank, heartbeat) },
		func(r reply) {
			if current() {
				t.answer(r, sent)
			} else if r.status == holds && !t.without(GiveBack) && (t.holds == nil || t.holds.id != i) {
				t.giveUp(i)
			}
		},
		func() {
			if current() {
				t.ambiguous = true
				t.request(heartbeat)
			}
		})
}

func (t *try) answer(r reply, sent int64) {
	switch r.status {
	case holds:
		t.judge(r.expiry, t.from(sent)+r.expiry-r.now-t.margin(), r.token, 0)
	case waits:
		t.queued, t.sent, t.told, t.rank = true, sent, r.now, r.rank
		if t.early != nil {
			t.message(*t.early)
			return
		}
		if !r.listens && !t.without(Follow) {
			t.subscribe()
			t.heartbeat()
			return
		}
		wait := r.poll
		if r.head {
			wait = min(wait, r.rest+5*millisecond)
		}
		t.sleep(wait)
	case refused:
		t.enter(0)
	case unknown:
		t.subscribe()
		t.enter(t.rank)
	}
}

// from is what a deadline counts from.
func (t *try) from(sent int64) int64 {
	if t.without(Anchor) {
		return t.clock()
	}
	return sent
}

// sleep asks again in d unless something happens before.
func (t *try) sleep(d int64) {
	if t.without(Poll) {
		return
	}
	t.polls++
	n := t.polls
	t.later(d, func() {
		if t.client.try == t && t.polls == n {
			t.heartbeat()
		}
	})
}

func (t *try) heartbeat() {
	t.polls++
	t.request(true)
}

// message is a grant by message. Delta is how long after the entry the server
// says that it granted, elapsed how long it is by the client's clock.
func (t *try) message(m message) {
	delta, elapsed, lasts := m.at-t.told, t.clock()-t.sent, m.expiry-m.at
	if t.without(Anchor) {
		delta = elapsed
	}
	deadline := t.sent + delta + lasts - t.margin()
	fresh := delta >= 0 && delta <= elapsed && elapsed-delta <= t.margin() || t.without(NoLateGrant)
	unsure := t.ambiguous && !t.without(Doubt)
	if !fresh || unsure || deadline-t.clock() < lasts/3 {
		t.confirm()
		return
	}
	t.judge(m.expiry, deadline, m.token, 100*millisecond)
}

// judge takes the lock if enough is left of it.
func (t *try) judge(expiry, deadline, token, renewIn int64) {
	if deadline-t.clock() <= t.margin() {
		t.confirm()
		return
	}
	t.believe(expiry, deadline, token, renewIn)
}

// confirm proves a grant by a request of its own.
func (t *try) confirm() {
	i, sent := t.id, t.clock()
	t.polls++
	t.ask(func(s *server) reply { return s.renew(i, 0) }, func(r reply) {
		switch {
		case t.client.try != t || t.id != i:
		case r.status == ok:
			t.judge(r.expiry, t.from(sent)+t.TTL-t.margin(), r.token, 0)
		default:
			t.enter(0)
		}
	}, func() {
		if t.client.try == t && t.id == i {
			t.ambiguous = true
			t.confirm()
		}
	})
}

func (t *try) subscribe() { t.subscription = works }

// cancel returns at once; what is left is cleaned up behind it.
func (t *try) cancel() {
	if t.client.try != t {
		return
	}
	t.client.try = nil
	t.giveUp(t.id)
	t.rest()
}

// A hold is a lock that a client believes in.
type hold struct {
	*client
	id
	deadline  int64 // by the client's clock
	token     int64
	first     int64 // of the tokens handed on under it: the server's own
	received  int64 // when that was, by the client's clock
	expiry    int64 // the last that the server acknowledged, by its clock
	shared    bool
	ambiguous bool
}

func (t *try) believe(expiry, deadline, token, renewIn int64) {
	c := t.client
	h := &hold{
		client: c, id: t.id, deadline: deadline, token: token, first: token,
		received: c.clock(), expiry: expiry, shared: t.shared, ambiguous: t.ambiguous,
	}
	c.try, c.holds = nil, h
	c.begins(h)
	if renewIn == 0 {
		renewIn = c.TTL / 3
	}
	h.renewIn(renewIn)
	h.expires()
	c.later(c.holdTime(), h.leave)
}

func (h *hold) current() bool { return h.client.holds == h }

// believed says whether the client would still work under the lock.
func (h *hold) believed() bool { return h.clock() < h.deadline }

// expires ends the hold when its deadline has passed.
func (h *hold) expires() {
	h.later(h.deadline-h.clock(), func() {
		switch {
		case !h.current():
		case h.believed():
			h.expires()
		default:
			h.lose()
		}
	})
}

// lose ends the hold, and then whatever a renewal under way may have revived.
func (h *hold) lose() {
	h.client.holds = nil
	h.giveUp(h.id)
	h.client.rest()
}

func (h *hold) renewIn(d int64) {
	h.later(d, func() {
		if h.current() && h.believed() {
			h.renew()
		}
	})
}

func (h *hold) renew() {
	sent, high := h.clock(), h.token
	h.ask(func(s *server) reply { return s.renew(h.id, high) }, func(r reply) {
		switch {
		case !h.current():
		case r.status == ok:
			h.prolong(sent, r)
			h.renewIn(h.TTL / 3)
		default:
			h.lose()
		}
	}, func() {
		if h.current() {
			h.renewIn(h.TTL / 20)
		}
	})
}

func (h *hold) prolong(sent int64, r reply) {
	if h.without(Anchor) {
		sent = h.clock()
	}
	h.deadline = max(h.deadline, sent+r.expiry-r.now-h.margin())
	h.expiry = r.expiry
}

// leave does what a holder does at the end of its work: hands the lock on,
// becomes a reader, or gives it back.
func (h *hold) leave() {
	switch {
	case !h.current():
	case !h.believed():
		h.lose()
	case !h.shared && h.chance(h.Pass) && h.pass():
		h.later(h.holdTime(), h.leave)
	case !h.shared && h.chance(h.Downgrade):
		h.downgrade()
	default:
		h.release()
	}
}

func (h *hold) release() {
	h.client.holds = nil
	i, high := h.id, h.token
	send := func(bury bool) func(*server) reply {
		return func(s *server) reply { return s.release(i, high, bury) }
	}
	h.ask(send(h.ambiguous), h.look, func() { h.insist(send(true), h.look) })
	h.client.rest()
}

// downgrade ends the exclusive belief before anything is sent.
func (h *hold) downgrade() {
	h.client.holds = nil
	reader := *h
	reader.shared = true
	h.client.holds = &reader
	h.client.becomesReader(&reader)
	reader.expires()
	reader.sendDowngrade()
	h.later(h.holdTime(), reader.leave)
}

func (h *hold) sendDowngrade() {
	sent := h.clock()
	h.ask(func(s *server) reply { return s.downgrade(h.id, h.token) }, func(r reply) {
		switch {
		case !h.current():
		case r.status == ok:
			h.prolong(sent, r)
			h.renewIn(h.TTL / 3)
		default:
			h.lose()
		}
	}, func() {
		if h.current() && h.believed() {
			h.sendDowngrade()
		}
	})
}
