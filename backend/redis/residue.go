package redis

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// minKeep is the shortest time for which the key of a free lock may be kept.
const minKeep = time.Second

// A residue is the scripts of a backend that keeps the keys of free locks for a time of
// its own. What clients keep for different times they can share.
type residue struct {
	keep time.Duration

	mu  sync.Mutex
	own map[*script]*script
}

// of is s with that time in it.
func (r *residue) of(s *script) *script {
	if r.keep == keep {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own[s] == nil {
		if r.own == nil {
			r.own = make(map[*script]*script)
		}
		times := fmt.Sprintf("%d, %d", millis(r.keep), millis(r.keep/10))
		own := newScript(strings.Replace(s.source.(string), "600000, 60000", times, 1))
		own.kind = s.kind
		r.own[s] = own
	}
	return r.own[s]
}

// script is s as this backend runs it.
func (b *Backend) script(s *script) *script {
	if b.nodes != nil && s.sharded != nil {
		s = s.sharded
	}
	return b.residue.of(s)
}
