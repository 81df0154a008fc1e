package simulation

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A server in memory says nothing of what changes there. So it is looked at when something can have:
// when a request has arrived, or its call returns, when a lease ends, and after a fault. What it had of
// a lock in the meantime is kept as that of a server of Redis is.

// afterwards is how soon after a moment all that happens at it is over.
const afterwards = time.Microsecond

// stand has something stand for a server where one of Redis would have a history.
func (s *shelves) stand(place int) {
	one := &server{index: place, owners: &s.world.owners}
	one.faults.origin = time.Now()
	if place < len(s.world.plan.Skews) {
		one.faults.skew = s.world.plan.Skews[place]
	}
	s.places, s.truths = append(s.places, one), append(s.truths, make(map[string]truth))
}

// around has locks looked at beside a request about them: when it has arrived, and when it has returned.
func (s *shelf) around(names ...string) (after func()) {
	s.of.stirs(s.place, names...)
	return func() { s.of.stirs(s.place, names...) }
}

// stirs has locks looked at now, and once more when all that happens at this moment is over.
func (s *shelves) stirs(place int, names ...string) {
	for _, name := range names {
		s.sees(place, name)
		time.AfterFunc(afterwards, func() { s.sees(place, name) })
	}
}

// sees notes what a server has of a lock, if that has changed, and comes back when a lease there ends.
func (s *shelves) sees(place int, name string) {
	s.looking.Lock()
	defer s.looking.Unlock()
	found, err := s.looks[place].Inspect(over, name)
	if err != nil {
		return // it is stopped
	}
	t := truthOf(found, s.places[place])
	if isSame(s.truths[place][name], t) {
		return
	}
	s.truths[place][name] = t
	s.notes(place, name, t)
	for _, h := range found.Holders {
		time.AfterFunc(h.Left+afterwards, func() { s.sees(place, name) })
	}
}

func (s *shelves) notes(place int, name string, t truth) {
	r := s.world.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lock(name)
	r.lastBusy(s.places[place], l)
	r.remember(s.places[place], name, t)
	r.note(-1, "s%d %s: %s, token %d, queue %v", place, name, s.told(t.holders()), t.token, s.told(t.queue))
	l.last[place] = t
}

// told says of ids whose they are.
func (s *shelves) told(ids []string) (owners []string) {
	for _, id := range ids {
		owners = append(owners, id[:1]+":"+s.places[0].owner(id))
	}
	return owners
}

func namesOf(holds []*backend.Hold) (names []string) {
	for _, h := range holds {
		names = append(names, h.Name)
	}
	return names
}

// truthOf is what a server in memory has of a lock, in the words of one of Redis.
func truthOf(found backend.Snapshot, s *server) truth {
	t := truth{at: time.Now()}
	end := func(h backend.Party) int64 { return s.clock().Add(h.Left).UnixMilli() }
	ids := make(map[string]int)
	idOf := func(p backend.Party) string {
		id := idOf(p)
		ids[id]++
		return fmt.Sprint(id, ".", ids[id])
	}
	for _, h := range found.Holders {
		id := idOf(h)
		if t.token = max(t.token, int64(h.Token)); h.Mode == backend.Exclusive {
			t.holder, t.expiry = id, end(h)
			continue
		}
		if t.readers == nil {
			t.readers, t.own = make(map[string]int64), make(map[string]int64)
		}
		t.readers[id], t.own[id] = end(h), int64(h.Token)
	}
	for _, w := range found.Waiters {
		t.queue = append(t.queue, idOf(w))
	}
	return t
}

// idOf is an id by which a server of Redis would know who has or wants a lock. Those who read side by side may
// have come at the same moment, so truthOf counts them.
func idOf(p backend.Party) string {
	kind := "w"
	if p.Mode == backend.Shared {
		kind = "r"
	}
	return fmt.Sprintf("%s:%s:%d=%s", kind, p.Client, p.Since.UnixNano(), strings.ReplaceAll(url.PathEscape(p.Label), ".", "%2E"))
}

func isSame(a, b truth) bool {
	return a.holder == b.holder && a.expiry == b.expiry && a.token == b.token &&
		slices.Equal(a.queue, b.queue) && maps.Equal(a.readers, b.readers) && maps.Equal(a.own, b.own)
}
