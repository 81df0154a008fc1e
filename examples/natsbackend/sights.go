package natsbackend

import (
	"sync"
	"time"
)

// Sights remember for how long a client has seen no sign of life of the holders
// of other clients. Time is counted here alone, by the monotonic clock, so that no
// two clocks are ever compared.
type sights struct {
	mu   sync.Mutex
	keys map[string]map[string]sight // by key and ID
}

// A sight is a beat and when it was first seen.
type sight struct {
	beat  uint64
	since time.Time
}

// mostSights bounds what is remembered. To forget is safe: a dead holder is then
// found out later.
const mostSights = 4096

// look notes the holders of a lock as they are now. It returns those that have
// shown no sign of life for their TTL, and when the next of the others will have.
func (m *sights) look(key string, s *state) (dead map[string]bool, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	last := m.keys[key]
	if m.keys == nil || len(m.keys) > mostSights {
		m.keys = make(map[string]map[string]sight)
	}
	delete(m.keys, key)
	if len(s.Holders) == 0 {
		return nil, time.Time{}
	}
	seen := make(map[string]sight, len(s.Holders))
	dead = make(map[string]bool)
	for _, e := range s.Holders {
		was, ok := last[e.ID]
		if !ok || was.beat != e.Beat {
			was = sight{e.Beat, now}
		}
		seen[e.ID] = was
		switch end := was.since.Add(e.TTL); {
		case !now.Before(end):
			dead[e.ID] = true
		case next.IsZero() || end.Before(next):
			next = end
		}
	}
	m.keys[key] = seen
	return dead, next
}
