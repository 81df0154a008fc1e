package simulation

import (
	"time"
)

// suffer has every fault of the plan happen in its time.
func (w *world) suffer() {
	for _, f := range w.plan.Faults {
		go func() {
			switch {
			case sleep(w.over, f.At) != nil:
			case f.Trigger != nil:
				w.await(f)
			default:
				w.reg.touch(f)
				w.happen(f)
			}
		}()
	}
}

// ways are those that a fault concerns.
func (w *world) ways(f Fault) []*way {
	var all []*way
	for _, c := range w.clients {
		if f.Client < 0 || f.Client == c.index {
			for place, s := range w.masters() {
				if f.Kind != "die" && place == f.Server {
					all = append(all, w.net.way(c.index, s.index))
				}
			}
			if f.Kind == "die" || f.Server == everywhere {
				for _, s := range w.nodes {
					all = append(all, w.net.way(c.index, s.index))
				}
			}
		}
	}
	return all
}

// goes reports whether a fault concerns a direction.
func (f Fault) goes(d direction) bool { return f.Way == 2 || direction(f.Way) == d }

func (w *world) happen(f Fault) {
	switch f.Kind {
	case "stutter":
		w.stutter(f)
		return
	case "standstill":
		w.standStill(f)
		return
	}
	if w.shelves != nil {
		w.shelves.happens(f)
		return
	}
	end := time.Now().Add(f.For)
	if f.Server == everywhere {
		w.happenEverywhere(f, end)
		return
	}
	s := w.master(f.Server)
	for _, way := range w.ways(f) {
		w.disturb(way, f, end)
	}
	switch f.Kind {
	case "die":
		w.bury(f.Client)
	case "pause":
		s.set(func() { s.faults.paused = end })
	case "restart":
		w.restart(s, f, nil)
	case "restart-empty":
		w.restart(s, f, newStore())
	case "restart-old":
		old := s.save()
		if sleep(w.over, f.Size) == nil { // it may be so old that there is no server any more
			w.restart(s, f, old)
		}
	case "failover":
		if w.layout != nil {
			w.handOver(f.Server)
			return
		}
		w.failover(s, f)
	case "promotion":
		if w.layout != nil {
			w.replace(f.Server, f)
			return
		}
		w.promotion(s, f)
	case "takeover":
		w.takeOver(f.Server)
	case "slot-move":
		w.shift(f)
	case "cluster-down":
		w.separate(f)
	case "no-sentinel":
		for i, s := range w.sentinels {
			if f.Way == 2 || i != 0 { // one is left, or none
				s.leave(end)
				for _, c := range w.clients {
					w.net.way(c.index, -1-i).reset()
				}
			}
		}
	case "misconf", "noperm", "no-channels", "login", "door":
		s.deny(f, end)
	case "rotate":
		w.rotate(f, end)
	case "pool":
		w.crowd(f, end)
	case "forge":
		s.forge(w.names(), w.plan.TTL)
	case "flush":
		s.flush()
	case "evict":
		s.evict(w.net.draws)
	case "flush-scripts":
		s.forgetScripts()
	case "full":
		s.set(func() { s.faults.full = end })
	case "readonly":
		s.set(func() { s.faults.writes = refusal{"READONLY You can't write against a read only replica.", end} })
	case "loading":
		s.set(func() { s.faults.all = refusal{"LOADING Redis is loading the dataset in memory", end} })
	case "busy":
		s.set(func() {
			s.faults.all = refusal{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", end}
		})
	case "clock-back":
		w.back.Add(int64(f.Size))
		w.step(f.Server, -f.Size)
	case "clock-on":
		w.on.Add(int64(f.Size))
		w.step(f.Server, f.Size)
	default:
		w.happenFurther(f, end)
	}
}

// step steps the clock of a master and of its replica, which follow the same one.
func (w *world) step(place int, d time.Duration) {
	s := w.master(place)
	for _, n := range w.nodes {
		if n == s || w.plan.Servers == 1 {
			n.step(d)
		}
	}
}

func (s *server) set(f func()) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	f()
}

// restart ends all connections of a server, which is away for a time.
func (w *world) restart(s *server, f Fault, with *store) {
	s.restart(with, f.For)
	s.copyAgain()
	w.cut(s)
}

// cut ends all connections to a server.
func (w *world) cut(s *server) {
	for _, c := range w.clients {
		w.net.way(c.index, s.index).reset()
	}
}

// disturb does what a fault does to one way.
func (w *world) disturb(way *way, f Fault, end time.Time) {
	each := func(change func(d direction)) {
		way.change(func() {
			for _, d := range []direction{up, down} {
				if f.goes(d) {
					change(d)
				}
			}
		})
	}
	later := func(g func()) { time.AfterFunc(f.For, g) }
	switch f.Kind {
	case "delay":
		each(func(d direction) { way.extra[d] += f.Size })
		later(func() { each(func(d direction) { way.extra[d] -= f.Size }) })
	case "slow":
		each(func(d direction) { way.rate[d] = 2000 })
		later(func() { each(func(d direction) { way.rate[d] = 0 }) })
	case "reset":
		way.reset()
	case "cut":
		way.change(func() { way.refuses = end })
		way.reset()
	case "hole":
		each(func(d direction) { way.held[d] = end })
	case "hole-reset":
		each(func(d direction) { way.held[d] = end })
		later(way.reset)
	case "half-open":
		way.halve()
		way.change(func() { way.refuses = end })
		later(way.reset)
	case "unanswered":
		way.unanswer(int(f.Size))
		later(func() { way.unanswer(0) })
	case "half-dead":
		way.forsake()
	case "deaf":
		way.change(func() { way.deaf = end })
	case "mute":
		way.mute()
	case "die":
		way.change(func() {
			never := time.Now().Add(24 * time.Hour)
			way.held = [2]time.Time{never, never}
		})
	}
}

// bury has a client be dead for all others: nobody asks any more what it believes.
func (w *world) bury(index int) {
	w.clients[index].dead.Store(true)
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead[index] = true
}
