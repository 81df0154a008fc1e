package simulation

import (
	"slices"
	"time"
)

// writing are the commands that a server keeps waiting of which somebody has asked CLIENT PAUSE
// WRITE, or FAILOVER: those that write, and those whose scripts or messages replicas hear of.
var writing = []string{"EVAL", "EVALSHA", "PUBLISH", "SPUBLISH"}

// awaitWrites waits until a server executes commands that write again. What a connection has
// asked before is answered meanwhile, and what follows on it waits as well. One whose client
// must not have to wait is ended; see dial.
func (s *server) awaitWrites(p *peer, cmd string) {
	if !slices.Contains(writing, cmd) {
		return
	}
	for {
		s.faults.mu.Lock()
		halt := time.Until(s.faults.halted)
		s.faults.mu.Unlock()
		if halt <= 0 {
			return
		}
		if p.isQuick() {
			p.conn.Close()
			return
		}
		p.flush()
		time.Sleep(halt)
	}
}
