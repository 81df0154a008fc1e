package simulation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// deniers are the faults in which a server that is in order refuses something: it cannot write
// its disk, its users may do less than before, or it lets nobody in who is not there yet.
var deniers = []string{"misconf", "noperm", "no-channels", "login", "door"}

// denials are what a server refuses, each until a time. They are guarded by faults.mu.
type denials struct {
	disk     time.Time // every write, and PING
	commands time.Time // all that a user does
	scripts  time.Time // scripts with keys
	inside   time.Time // what a script executes
	channels time.Time // to subscribe, and to publish
	counts   time.Time // whatever is about channels, to count who is there too
	login    time.Time // the password
	door     time.Time // to connect
	crowded  bool      // it says why
}

const (
	errDisk       = replyError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.")
	errNoScripts  = replyError("NOPERM No permissions to access a key")
	errNoChannel  = replyError("NOPERM No permissions to access a channel")
	errNoChannels = replyError("ERR ACL failure in script: No permissions to access a channel")
	errPassword   = replyError("WRONGPASS invalid username-password pair or user is disabled.")
	errNoLogin    = replyError("NOAUTH Authentication required.")
	errCrowded    = replyError("ERR max number of clients reached")
)

// denying is what s refuses now.
func (s *server) denying() denials {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return s.faults.denials
}

// denies returns the error with which a command is refused, or nil. HELLO is always allowed to
// who has once given the right password.
func (s *server) denies(p *peer, cmd string, args []string) error {
	now, d := time.Now(), s.denying()
	switch {
	case !s.knows(cmd):
		return errUnknown(cmd, args)
	case cmd == "AUTH", cmd == "HELLO" && len(args) > 1 && strings.EqualFold(args[1], "AUTH"):
		if now.Before(d.login) || s.admits != nil && !s.admits(args) {
			p.stranger = !p.known
			return errPassword
		}
		p.stranger, p.known = false, true
		return nil
	case p.stranger:
		return errNoLogin
	case cmd == "HELLO":
		return nil
	case now.Before(d.commands):
		return replyError("NOPERM User u has no permissions to run the '" + strings.ToLower(cmd) + "' command")
	case now.Before(d.scripts) && strings.HasPrefix(cmd, "EVAL"):
		return errNoScripts
	case now.Before(d.counts) && isAboutChannels(cmd):
		return replyError("NOPERM User u has no permissions to run the '" + strings.ToLower(cmd) + "' command")
	case now.Before(d.channels) && (strings.HasSuffix(cmd, "PUBLISH") || cmd == "SUBSCRIBE" || cmd == "SSUBSCRIBE"):
		return errNoChannel
	case now.Before(d.disk) && cmd == "PING":
		return errDisk
	}
	return nil
}

func isAboutChannels(cmd string) bool {
	return cmd == "PUBSUB" || strings.HasSuffix(cmd, "SUBSCRIBE") || strings.HasSuffix(cmd, "PUBLISH")
}

// deniesInside is denies for what a script executes.
func (s *server) deniesInside(cmd string) error {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	now, d := time.Now(), &s.faults.denials
	c, isData := commands[cmd]
	switch {
	case now.Before(d.inside), now.Before(d.counts) && isAboutChannels(cmd):
		return replyError("ERR ACL failure in script: User u has no permissions to run the '" + strings.ToLower(cmd) + "' command")
	case now.Before(d.channels) && strings.HasSuffix(cmd, "PUBLISH"):
		return errNoChannels
	case now.Before(d.disk) && isData && c.writes && !s.wrote:
		return errDisk
	}
	return nil
}

// turnsAway reports whether s takes no more connections, and whether it says so.
func (s *server) turnsAway() (closed, says bool) {
	d := s.denying()
	closed = time.Now().Before(d.door)
	return closed && !d.crowded, closed && d.crowded
}

// deny has a server refuse something for the time of a fault.
func (s *server) deny(f Fault, end time.Time) {
	s.set(func() {
		d := &s.faults.denials
		switch {
		case f.Kind == "misconf":
			d.disk = end
		case f.Kind == "login":
			d.login = end
		case f.Kind == "door":
			d.door, d.crowded = end, f.Way == 0
		case f.Kind == "no-channels" && f.Way == 0:
			d.counts = end
		case f.Kind == "no-channels":
			d.channels = end
		case f.Way == 0:
			d.commands = end
		case f.Way == 1:
			d.scripts = end
		default:
			d.inside = end
		}
	})
	if f.Kind == "no-channels" && f.Way != 0 {
		s.endSubscriptions()
	}
}

// endSubscriptions ends the connections with subscriptions, as a server does that of a user who
// must not have the channel any more.
func (s *server) endSubscriptions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		if len(p.channels) > 0 {
			_ = p.conn.Close()
		}
	}
}

// denials draws what servers refuse in a part of the plans that have faults, in half of these
// nothing else goes wrong. Of a quorum it is a server that gives trouble already.
func (g *generator) denials() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 40))}
	p := g.plan
	if len(p.Faults) == 0 || !g.often(25) {
		return
	}
	servers, kind, one, alone := p.Faults, pick(g.draw, deniers...), g.often(50), g.often(50)
	if alone {
		p.Faults = nil
	}
	for range 1 + g.IntN(4) {
		f := Fault{Kind: kind, At: g.within(0, p.Length), Client: -1, Server: pick(g.draw, servers...).Server, Way: g.IntN(3)}
		f.For = g.lasting()
		p.Faults = append(p.Faults, f)
		if !one {
			kind = pick(g.draw, deniers...)
		}
	}
}

// keepsConnections are the faults that end no connection for requests.
var keepsConnections = append([]string{"forge", "deaf", "mute", "flush", "evict", "flush-scripts", "full", "clock-back", "clock-on", "break"}, deniers...)

// locksOut notes that clients cannot connect. Where something else goes wrong in a plan, they
// may have to; else those may whose connections end by themselves.
func (r *register) locksOut(t touched) {
	p := r.w.plan
	ends := slices.ContainsFunc(p.Faults, func(f Fault) bool { return !slices.Contains(keepsConnections, f.Kind) })
	if t.kind == "greeting" {
		t.kind = "ungreeted"
	} else {
		t.kind = "locked-out"
	}
	if ends {
		r.adds(t)
		return
	}
	for i := range p.Clients {
		if t.client = i; p.hostOf(i) == i && p.endsConnections(i) {
			r.adds(t)
		}
	}
}

func denies(t touch) bool { return t.denies }

// polls says of which faults a subscription is refused: who waits asks again and again, and
// subscribes anew as much later as it may ask.
func polls(t touch) bool { return t.polls }

// isDenied reports whether a call may have failed because the server did not allow something.
func (r *register) isDenied(c *call, err error) bool {
	since := c.start.Add(-unanswered)
	return errors.Is(err, dlock.ErrAuth) && (r.harmed(c.client, since, denies) || r.triesBeside(c, since))
}

// triesBeside reports whether a call that does not wait is denied by a member of a quorum, and another has been away: a
// client that has asked for nothing since takes that for silent, and hears of the denial sooner than of its return.
func (r *register) triesBeside(c *call, since time.Time) bool {
	meets := func(t touched) bool { return t.client < 0 || t.client == c.client }
	return r.w.plan.Backend == "quorum" && !c.waits && slices.ContainsFunc(r.touches, func(t touched) bool {
		return meets(t) && t.to.After(since) && denies(kinds[t.kind]) && slices.ContainsFunc(r.touches, func(o touched) bool {
			return meets(o) && kinds[o.kind].fails && o.server != t.server
		})
	})
}

// refuses checks that who is denied something is told so. Only a server that has all that
// it needs says no more than that.
func (r *register) refuses(c *call, err error) {
	if r.w.plan.Backend != "redis" || c.ctx.Err() != nil || c.hurried || c.patient != (time.Time{}) || r.exhausts(c) {
		return
	}
	// Who waits behind what its client gives back, in vain, has asked for nothing yet.
	before := c.start.Add(-longestTTL(r.w.plan.TTL))
	if slices.ContainsFunc(c.names, func(n string) bool { return r.freed[party{c.client, n}].After(before) }) {
		return
	}
	denied := false
	for _, t := range r.touches {
		switch {
		case !t.to.After(c.start.Add(-lingers)):
		case t.kind == "noperm" && t.from.Before(c.start) && t.to.After(time.Now()):
			denied = true
		default:
			return
		}
	}
	if denied {
		r.violate("a denial is told", "c%d %s %v: %v", c.client, c.what, c.names, err)
	}
}
