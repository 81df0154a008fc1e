package simulation

import (
	"strconv"
	"time"
)

// A replication is the way from a master to the replica that has it.
type replication struct {
	lag     time.Duration
	extra   time.Duration // by which it is farther behind for a time
	held    time.Time     // nothing arrives before that
	effects [][]string    // of what the master executes now
	stream  []effect      // on its way to this server, in order
	sent    int           // how many effects this server has sent, as a master
	applied int           // up to which effect of its master this server is
}

// An effect is what a command of the master changes.
type effect struct {
	due    time.Time
	number int
	at     int64 // ms by the clock of the master
	args   []string
	all    *store // a whole copy, in place of a command
	key    string // that has come from another node, in place of a command
	value  *value
}

// hasChanged reports whether a command that writes has changed anything: a replica hears of nothing
// else.
func (s *store) hasChanged(command string, reply any) bool {
	switch command {
	case "HSET":
		return true
	case "ZADD":
		return !s.same
	}
	return reply != int64(0)
}

// note has a replica hear of a command. It is called with mu held.
func (s *server) note(args []string) {
	if s.replica == nil {
		return
	}
	if args[0] == "PEXPIRE" {
		ms, _ := strconv.ParseInt(args[2], 10, 64)
		args = []string{"PEXPIREAT", args[1], strconv.FormatInt(s.data.now+ms, 10)}
	}
	s.link.effects = append(s.link.effects, args)
}

// replicate sends off what was noted.
func (s *server) replicate() {
	if len(s.link.effects) == 0 {
		return
	}
	for _, args := range s.link.effects {
		s.send(effect{args: args})
	}
	s.link.effects = nil
}

// send has an effect arrive at the replica in its time.
func (s *server) send(e effect) {
	r := s.replica
	if r == nil {
		return
	}
	s.link.sent++
	r.mu.Lock()
	defer r.mu.Unlock()
	e.number, e.at, e.due = s.link.sent, s.data.now, r.link.due()
	if len(r.link.stream) == 0 {
		time.AfterFunc(time.Until(e.due), r.catchUp)
	}
	r.link.stream = append(r.link.stream, e)
}

// resync sends a whole copy.
func (s *server) resync() { s.send(effect{all: s.data.copy()}) }

// copyAgain has a server that follows another take all that this has, as it does when it has
// started. What was a master as it was to restart may follow one by then.
func (s *server) copyAgain() {
	s.mu.Lock()
	m := s.master
	s.mu.Unlock()
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.replica == s {
		m.resync()
	}
}

// catchUp takes what is due, and comes back for the rest.
func (s *server) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.link.stream) > 0 && !s.link.stream[0].due.After(time.Now()) {
		s.apply(s.link.stream[0])
		s.link.stream = s.link.stream[1:]
	}
	if len(s.link.stream) > 0 {
		time.AfterFunc(time.Until(s.link.stream[0].due), s.catchUp)
	}
}

func (s *server) apply(e effect) {
	s.link.applied = e.number
	switch c, isData := commands[first(e.args)]; {
	case e.all != nil:
		s.data = e.all
		s.data.follows = true
	case e.value != nil:
		s.data.values[e.key] = e.value
	case isData:
		s.data.now, s.data.follows = e.at, false // keys end when they do at the master
		_, _ = c.call(s.data, e.args[0], e.args[1:])
		s.data.follows = true
	default: // PUBLISH: those who are subscribed here hear it, and are not counted
		s.publish(messageKind(e.args[0]), e.args[1], e.args[2])
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// wait answers WAIT: how many replicas have what was sent before.
func (s *server) wait(p *peer, args []string) (any, error) {
	if len(args) != 2 {
		return nil, errSyntax
	}
	ms, _ := strconv.Atoi(args[1])
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	s.mu.Lock()
	want, r, follows := p.wrote, s.replica, s.master != nil
	if s.old {
		want = s.link.sent
	}
	s.mu.Unlock()
	if follows {
		return nil, replyError("ERR WAIT cannot be used with replica instances.")
	}
	for r != nil {
		due, done := r.reached(want)
		if done {
			time.Sleep(r.link.lag) // the acknowledgement comes back
			return int64(1), nil
		}
		if due.After(end) {
			break
		}
		time.Sleep(time.Until(due) + time.Microsecond)
	}
	time.Sleep(time.Until(end))
	return int64(0), nil
}

// reached reports whether a replica has an effect, and else when it is due.
func (s *server) reached(number int) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.applied >= number {
		return time.Time{}, true
	}
	for _, e := range s.link.stream {
		if e.number == number {
			return e.due, false
		}
	}
	return time.Now().Add(time.Hour), false // it follows another master by now
}

// followedBy has a replica follow s.
func (s *server) followedBy(r *server, lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replica = r
	r.mu.Lock()
	r.master, r.link.lag = s, lag
	r.mu.Unlock()
	s.resync()
}

// abandoned has a master have no replica any more.
func (s *server) abandoned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replica, s.link.effects = nil, nil
}

// promoted has a replica be a master, with what it has.
func (s *server) promoted(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.link.stream = nil, nil
	s.getsOlder(s.data)
	s.data.now, s.data.follows = s.clock().UnixMilli(), false
	for _, name := range names {
		s.look(name, false)
	}
}

// caughtUp reports whether nothing is on its way to a replica.
func (s *server) caughtUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.link.stream) == 0
}

// failover has the replica take over from the master once it has all that there is.
// Until then no command is executed. Connections to what was the master live on.
func (w *world) failover(old *server, f Fault) {
	r := old.replica
	if r == nil {
		return
	}
	old.set(func() { old.faults.paused = time.Now().Add(2*w.plan.Lag + time.Millisecond) })
	for first := true; first || !r.caughtUp(); first = false {
		if r.isBehind() || sleep(w.over, w.plan.Lag+time.Microsecond) != nil {
			return
		}
	}
	old.abandoned()
	w.promote(f.Server, r)
	r.followedBy(old, w.plan.Lag)
	if f.Way != 2 { // else somebody else than a Sentinel has arranged it
		w.dismiss(old)
	}
}

// promotion has the replica take over with what it has. What was the master is gone, or
// answers still to whoever is connected, and follows later.
func (w *world) promotion(old *server, f Fault) {
	r := old.replica
	if r == nil {
		return
	}
	old.abandoned()
	if f.Way == 0 {
		old.set(func() { old.faults.down = time.Now().Add(f.For) })
		w.cut(old)
	}
	w.promote(f.Server, r)
	if sleep(w.over, f.For) == nil {
		r.followedBy(old, w.plan.Lag)
		w.dismiss(old)
	}
}

// promote has an address stand for another server.
func (w *world) promote(place int, r *server) {
	w.keepNames(place)
	masters := append([]*server(nil), w.masters()...)
	masters[place] = r
	w.now.Store(&masters)
	r.promoted(w.names())
	w.dismiss(r)
	w.appoint(r)
	w.looksUp(place, r)
}
