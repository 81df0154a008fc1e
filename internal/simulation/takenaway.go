package simulation

import "sync"

// What somebody else had in keys of locks, and has taken away. Data that a server has from before that has it still,
// and whoever took it away takes it away from there too: nobody else would, and it would be there for ever. It has a
// mutex of its own, as it is asked with that of a server held, at times beneath that of the register.
type takenAway struct {
	mu  sync.Mutex
	all map[string][]*value // by key
}

// note says that somebody is about to take a key away.
func (t *takenAway) note(key string, v *value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[string][]*value)
	}
	t.all[key] = append(t.all[key], v.copy())
}

// dropFrom takes away from older data what has been taken away since.
func (t *takenAway) dropFrom(data *store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, all := range t.all {
		for _, was := range all {
			if v := data.values[key]; v != nil && v.isFrom(was) {
				data.drop(key, was)
			}
		}
	}
}

// drop takes away what somebody else had in a key, and leaves what a lock has added to it.
func (s *store) drop(key string, was *value) {
	if was.isUnreadable() {
		delete(s.values, key)
		return
	}
	v := s.values[key]
	delete(v.hash, theirs)
	s.tidy(key, v)
}

// getsOlder has a server have data from before now. It is called with mu held.
func (s *server) getsOlder(data *store) {
	s.data = data
	if s.world != nil {
		s.world.takenAway.dropFrom(data)
	}
}
