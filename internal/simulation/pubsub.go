package simulation

import (
	"fmt"
	"strings"
	"time"
)

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
	if len(p.channels) == 0 && s.answers != nil {
		s.answers(s, p.name, s.master == nil || s.node != nil)
	}
	switch {
	case len(p.channels) > 0 && !p.resp3:
		p.push("pong", payload)
	case payload == "":
		p.reply(status("PONG"), nil)
	default:
		p.reply(payload, nil)
	}
}

// messageKind is what a message is called that a command has sent.
func messageKind(cmd string) string {
	return strings.ToLower(strings.Replace(cmd, "PUBLISH", "message", 1))
}

// publish tells those who are subscribed here, and returns how many they are.
func (s *server) publish(kind, topic, text string) int {
	s.tells(topic, text)
	for p := range s.topics[topic] {
		p.push(kind, topic, text)
	}
	return len(s.topics[topic])
}

// count answers PUBSUB NUMSUB.
func (s *server) count(args []string) (any, error) {
	if len(args) == 0 || !strings.HasSuffix(strings.ToUpper(args[0]), "NUMSUB") {
		return nil, errSyntax
	}
	if s.ancient && strings.EqualFold(args[0], "SHARDNUMSUB") {
		return nil, replyError("ERR Unknown subcommand or wrong number of arguments for '" + args[0] + "'. Try PUBSUB HELP.")
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

// guesses is up to which number a stranger tries requests.
const guesses = 150

// forge has a stranger publish whatever looks like a word of this server. The names of
// channels, of clients and of locks are no secret, and the numbers of requests are guessed.
func (s *server) forge(names []string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, kind := s.clock(), messageKind("PUBLISH")
	if s.node != nil {
		kind = messageKind("SPUBLISH")
	}
	for topic := range s.topics {
		client := topic[strings.LastIndexByte(topic, ':')+1:]
		for _, name := range names {
			for n := range 2 * guesses {
				id := fmt.Sprintf("%c%d:%s:%d", "wr"[n%2], ttl.Milliseconds(), client, n/2+1)
				s.publish(kind, topic, fmt.Sprintf("%s.AAAAAAAAAAA %d %d %d 0 dlock:{%s}", id,
					now.UnixMicro(), now.UnixMicro(), now.Add(min(ttl, 5*time.Second)).UnixMilli(), encode(name)))
				for _, hint := range []string{"contended", "poll", "broken"} {
					s.publish(kind, topic, fmt.Sprintf("%s %s %040x", hint, id, n))
				}
			}
		}
	}
}
