package simulation

import "strings"

// subscription begins or ends subscriptions.
func (s *server) subscription(p *peer, cmd string, args []string) {
	begins := !strings.Contains(cmd, "UNSUB")
	word := strings.ToLower(cmd)
	for _, topic := range args {
		if begins {
			p.channels[topic] = true
			if s.topics[topic] == nil {
				s.topics[topic] = make(map[*peer]bool)
			}
			s.topics[topic][p] = true
		} else {
			delete(p.channels, topic)
			delete(s.topics[topic], p)
		}
		p.push(word, topic, int64(len(p.channels)))
	}
}

// ping answers one: on a connection with subscriptions as a message, by the older protocol.
func (s *server) ping(p *peer, args []string) {
	payload := strings.Join(args, "")
	switch {
	case len(p.channels) > 0 && !p.resp3:
		p.push("pong", payload)
	case payload == "":
		p.reply(status("PONG"), nil)
	default:
		p.reply(payload, nil)
	}
}

// publish tells those who are subscribed here, and returns how many they are.
func (s *server) publish(topic, text string) int {
	for p := range s.topics[topic] {
		p.push("message", topic, text)
	}
	return len(s.topics[topic])
}

// count answers PUBSUB NUMSUB.
func (s *server) count(args []string) (any, error) {
	if len(args) == 0 || !strings.HasSuffix(strings.ToUpper(args[0]), "NUMSUB") {
		return nil, errSyntax
	}
	all := []any{}
	for _, topic := range args[1:] {
		all = append(all, topic, int64(len(s.topics[topic])))
	}
	return all, nil
}

// forget ends what a connection has here.
func (s *server) forget(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic := range p.channels {
		delete(s.topics[topic], p)
	}
	delete(s.peers, p)
}
