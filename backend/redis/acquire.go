package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// An acquisition is one Acquire under way. It is the business of one goroutine.
type acquisition struct {
	backend.Request
	ballot *backend.Ballot // if the server is one of several that decide together
	b      *Backend
	key    key
	told   string // the name of the channel on which it would be told

	id       string  // of the present entry into the queue
	entries  int     // how many ids it has had before
	doubt    bool    // an acquire of id may still be under way
	owed     bool    // the server may have an entry or a hold of id
	answered bool    // the server has said something
	rank     string  // place in the queue; empty: none yet
	queuedAt moment  // when it was last found in the queue
	waiter   *waiter // of id; nil if it must not wait

	polls     bool            // no message will come for id
	channel   *channel        // on which a message would come; nil: there is none yet
	moves     backend.Backoff // pauses between channels that are of no use
	moved     int             // how many such channels there were, one after another
	pollUntil time.Time       // not to subscribe before that
}

// A moment is a time by two clocks. The server's was read after ours.
type moment struct {
	sent time.Time
	us   int64
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	return b.acquire(ctx, r, nil)
}

func (b *Backend) acquire(ctx context.Context, r backend.Request, v *backend.Ballot) (*backend.Hold, error) {
	if b.unfit != nil {
		return nil, b.unfit
	}
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c := b.newAcquisition(&r, v)
	a, ok := c.grab(ctx)
	if !ok {
		a, err = c.joinQueue(ctx)
	}
	h, err := c.complete(ctx, a, err)
	if err != nil {
		c.leaveQueue()
	}
	return h, err
}

func (b *Backend) newAcquisition(r *backend.Request, v *backend.Ballot) *acquisition {
	k := lockKey(r.Name)
	c := &acquisition{Request: *r, ballot: v, b: b, key: k, told: b.channelOf(k, r.ID.Client)}
	c.channel = b.listener.existing(c.told)
	c.polls = b.listener.pollOnly || c.channel.status() == denied
	c.renewID()
	return c
}

// complete goes on after the answer to a request, until the lock is held or that is
// hopeless.
func (c *acquisition) complete(ctx context.Context, a answer, err error) (*backend.Hold, error) {
	for err == nil {
		var g grant
		switch c.status(a) {
		case "GRANTED":
			g = c.grantOf(a)
		case "QUEUED":
			c.Queued()
			if g, a, err = c.awaitGrant(ctx, a); g.id == "" {
				continue
			}
		case "GONE", "DEAD": // as a rule the connection of the subscription is dead, and nobody heard the grant
			c.resubscribe(ctx)
			a, err = c.enterQueue(ctx)
			continue
		case "HELD":
			return nil, c.refusal(a)
		default:
			return nil, fail(errGarbled)
		}
		h, failed := c.accept(ctx, g)
		if h != nil || failed != nil {
			return h, failed
		}
		a, err = c.startOver(ctx)
	}
	return nil, err
}

// refusal is why a request that must not wait has not got the lock. One of several servers tells
// a reader that it would have the lock if no writer waited.
func (c *acquisition) refusal(a answer) error {
	if c.ballot != nil && a.int(2) > 0 {
		return backend.ErrBehindWriter
	}
	return backend.ErrHeld
}

// joinQueue asks by the script that can also queue. As long as no message can reach this
// client it only tries to get the lock: a hand-over would skip it in the queue.
func (c *acquisition) joinQueue(ctx context.Context) (answer, error) {
	if !c.Wait || c.polls || c.channel.status() == working {
		return c.ask(ctx, c.mode())
	}
	a, err := c.ask(ctx, "t")
	if err != nil || a.status() != "HELD" {
		return a, err
	}
	c.channel = c.b.listener.subscribe(c.told, nil)
	c.polls = !c.channel.works(ctx, subscribeTimeout)
	if err := c.ended(ctx); err != nil {
		return a, err
	}
	return c.enterQueue(ctx)
}

func (c *acquisition) mode() string {
	if c.Wait {
		return "w"
	}
	return "t"
}

// enterQueue enters the queue anew, with a new id and the place it had.
func (c *acquisition) enterQueue(ctx context.Context) (answer, error) {
	c.leaveQueue()
	c.renewID()
	return c.ask(ctx, c.mode())
}

// renewID gives the acquisition a new id.
func (c *acquisition) renewID() {
	c.id = c.b.ids.newID(c.key, &c.Request, c.entries, c.polls, c.ballot)
	c.entries++
	c.doubt, c.owed = false, false
	if c.Wait {
		c.waiter = newWaiter(c.key, c.id, c.told)
		c.b.listener.addWaiter(c.waiter)
	}
}

// leaveQueue gives up what the id may have or wait for. The server is told in the
// background if it must be.
func (c *acquisition) leaveQueue() {
	c.b.listener.removeWaiter(c.id)
	if c.doubt || c.owed {
		c.b.giveUp(c.key, c.id, c.doubt, c.answered, c.TTL)
	}
}

// ask sends an acquire and repeats it, with the same id, until it is answered.
func (c *acquisition) ask(ctx context.Context, mode string) (answer, error) {
	began := time.Now()
	var again repeat
	for {
		s, call := c.call(mode)
		a, err := c.send(ctx, mode, s, call)
		if err == nil {
			c.Answered()
			return a, nil
		}
		if ended := c.ended(ctx); ended != nil {
			return a, ended
		}
		_, refused := replyOf(err)
		switch {
		case isHopeless(err), isUnacknowledged(err), a.status() == "NOT_READY",
			refused && c.ballot != nil, // other servers may grant
			!c.answered && (!isPassing(err) || time.Since(began) > backend.FirstAnswer):
			return a, fail(err)
		}
		backend.Sleep(ctx, again.pause(c.b, err)) // if it ends early, the next try says why
	}
}

// ended returns why nobody waits for the lock any more, or nil.
func (c *acquisition) ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return backend.WaitEnded(ctx, c.answered)
}

// call is the script that asks for the lock, and the command that runs it. A server that
// has an id in its queue votes, and is not asked again whether it does.
func (c *acquisition) call(mode string) (*script, []any) {
	if c.ballot == nil || mode == "p" {
		return acquireScript, acquireScript.callWith(c.key, 5, c.id, millis(c.TTL), mode, c.rank)
	}
	return voteScript, c.voteCall(mode)
}

// send sends a request for the lock once, and notes what the server may have of it.
func (c *acquisition) send(ctx context.Context, mode string, s *script, call []any) (answer, error) {
	a, err := c.b.run(ctx, replyTimeout(c.TTL), s, call)
	status := c.status(a)
	if isUnacknowledged(err) && status != "GRANTED" {
		err = nil // it counts on nothing yet
	}
	switch {
	case err == nil:
		c.owed = mayOwe(status)
		err = notReady(a)
		c.answered = c.answered || err == nil
	case !isUntouched(err):
		_, isReply := replyOf(err)
		c.doubt = c.doubt || !isReply && mode != "p"
		c.owed = true
	}
	return a, err
}

// mayOwe reports whether the server may have something of an id after such a status. What
// cannot be read may be a grant that was garbled on its way.
func mayOwe(status string) bool {
	switch status {
	case "HELD", "GONE", "DEAD", "NOT_READY":
		return false
	}
	return true
}

// status is what the server said of the acquisition. A number is a grant, but for 0.
func (c *acquisition) status(a answer) string {
	switch status := a.status(); {
	case status == "GRANTED" && a.int(2) <= 0: // each has a token
	case status == "QUEUED" && !c.Wait, status == "GONE" && !c.Wait:
	case !a.plain:
		return status
	case a.number > 0:
		return "GRANTED"
	}
	return ""
}

func rankOf(a answer) string { return strconv.FormatInt(a.int(2), 10) }
