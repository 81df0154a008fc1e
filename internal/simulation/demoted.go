package simulation

// A server that follows another may know less than that one: a place in a queue, a hold, or how long that
// lasts has not reached it yet. Connections to it from when it was a master live on, and end only by what
// it refuses. So it tells nobody that something is gone.

// goneWords are those by which an answer says so, by the script that gives it. What is dead its client has
// given up by itself.
var goneWords = map[string]string{"acquire": "GONE", "release": "NOT_HELD"}

// isGone reports whether the answer of a script says that who has asked has a hold, or a place, no longer.
func isGone(source string, keys, args []string, reply any) bool {
	if len(lossesIn(source, keys, args, reply)) > 0 {
		return true
	}
	all, _ := reply.([]any)
	if len(all) == 0 {
		return false
	}
	word, found := goneWords[scriptOf(source)]
	return found && all[0] == word
}

// isBelieved checks what a script has answered on a server that follows another.
func (s *server) isBelieved(client, source string, keys, args []string, reply any, err error) {
	if s.master == nil || s.world == nil {
		return
	}
	r := s.world.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.coverage["a replica refuses × "+scriptOf(source)]++
	case isGone(source, keys, args, reply) && !r.isForeign(): // what somebody else has put in the place of a hold is believed
		r.violate("a replica says nothing of holds", "s%d follows another, and tells %s: %s %v %v", s.index, client, scriptOf(source), locksOf(keys), reply)
	}
}
