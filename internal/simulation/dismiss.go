package simulation

// dismiss ends all connections of a server to which a Sentinel has said whom to follow: it
// sends SLAVEOF together with CLIENT KILL.
func (w *world) dismiss(s *server) {
	if w.plan.Sentinels {
		s.dismiss()
	}
}

// dismiss ends all connections of clients. What they were told arrives, and what they have
// asked and not been answered is not executed.
func (s *server) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		p.run = gone
		if c, simulated := p.conn.(*conn); simulated {
			c.hangUp()
		}
	}
}

// gone is the run of a server for whose connections it executes nothing.
const gone = -1
