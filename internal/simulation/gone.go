package simulation

import (
	"regexp"
	"slices"
	"time"
)

// polled is how the id of a request begins that asks, in place of being told.
var polled = regexp.MustCompile(`^[wr][0-9]+p`)

// letsIn checks that a server lets nobody in who waits to be told, and listens to nothing there: its
// client is gone, and the lock would be nobody's for the time of a grant. Where the server does not say
// who listens everybody is thought to.
func (r *register) letsIn(s *server, name string, old, t truth) {
	d, now := s.denying(), time.Now()
	if s.ancient && s.node != nil || now.Before(d.counts) || now.Before(d.inside) || s.master != nil { // its master has let somebody in
		return
	}
	for _, id := range t.holders() {
		if had(old, id) || !slices.Contains(old.queue, id) || polled.MatchString(id) || s.owner(id) == s.asker {
			continue
		}
		channel := "dlock:c:"
		if s.node != nil {
			channel = lockKey(name) + ":c:"
		}
		if len(s.topics[channel+clientOf(id)]) == 0 {
			r.violate("nobody is let in who is gone", "s%d lets %s have %s, and it does not listen", s.index, s.owner(id), name)
		}
	}
}
