package simulation

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A truth is the state of one lock as the server has it.
type truth struct {
	at      time.Time // by the clock of the world
	holder  string    // id
	expiry  int64     // ms, by the clock of the server
	token   int64
	readers map[string]int64 // expiry by id
	queue   []string         // ids

	scripted bool             // a script has made it so
	by       string           // the client that ran it
	own      map[string]int64 // tokens by which readers are known, where those differ from that of all
}

// clientOf is the part of an id that says which client has made it.
func clientOf(id string) string {
	if len(id) < 34 || id[0] != 'w' && id[0] != 'r' {
		return ""
	}
	_, rest, found := strings.Cut(id, ":")
	if !found || len(rest) < 33 || rest[32] != ':' {
		return ""
	}
	return rest[:32]
}

// requestOf is the part of an id that stays the same when a request has to queue anew. A mark before the client
// says that it asks, as no message can tell it of a grant: that may change then.
func requestOf(id string) string {
	id, _, _ = strings.Cut(id, ".")
	id, _, _ = strings.Cut(id, "+")
	id, _, _ = strings.Cut(id, "=")
	kind, request, _ := strings.Cut(id, ":")
	return strings.ReplaceAll(kind, "p", "") + ":" + request
}

// labelOf is the part of an id that is the label of its request.
func labelOf(id string) string {
	_, label, _ := strings.Cut(id, "=")
	label, _, _ = strings.Cut(label, ".")
	return label
}

// isLabelled reports whether an id is of a request with that label.
func isLabelled(id, label string) bool {
	own, err := url.PathUnescape(labelOf(id))
	return err == nil && own == label
}

// learn notes which client makes which ids. Only its own requests for a lock carry
// an id that is not known.
func (s *server) learn(client string, args []string) {
	for _, a := range args {
		if id := clientOf(a); id != "" {
			s.owners.LoadOrStore(id, client)
		}
	}
}

// owner names the client that made an id.
func (s *server) owner(id string) string {
	name, _ := s.owners.Load(clientOf(id))
	text, _ := name.(string)
	return text
}

// locksOf are the names of the locks that have such keys.
func locksOf(keys []string) []string {
	var names []string
	for _, k := range keys {
		if rest, found := strings.CutPrefix(k, "dlock:{"); found {
			text, _, found := strings.Cut(rest, "}")
			if name := decode(text); found && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// look reads the state of a lock, and tells of a change. It is called with mu held.
func (s *server) look(name string, scripted bool) {
	t := s.read(name)
	if t.scripted = scripted; scripted {
		t.by = s.asker
	}
	if v := s.data.get(lockKey(name)); v != nil && s.world != nil {
		s.world.reg.enters(name, v.hash["o"], v.hash["n"])
	}
	old := s.truths[name]
	if old.holder == t.holder && old.expiry == t.expiry && old.token == t.token &&
		slices.Equal(old.queue, t.queue) && maps.Equal(old.readers, t.readers) && maps.Equal(old.own, t.own) {
		return
	}
	s.truths[name] = t
	s.saw(s, name, t)
}

// lookAll reads the state of all locks there have been.
func (s *server) lookAll() {
	for name := range s.truths {
		s.look(name, false)
	}
}

func (s *server) read(name string) truth {
	key := lockKey(name)
	t := truth{at: time.Now()}
	if v := s.data.get(key); v != nil {
		t.holder = v.hash["o"]
		t.expiry, _ = strconv.ParseInt(v.hash["e"], 10, 64)
		t.token, _ = strconv.ParseInt(v.hash["t"], 10, 64)
		t.own = ownTokens(v.hash)
	}
	if v := s.data.get(key + ":r"); v != nil {
		t.readers = make(map[string]int64)
		for _, m := range v.set {
			t.readers[m.name] = int64(m.score)
		}
	}
	if v := s.data.get(key + ":q"); v != nil {
		for _, m := range v.set {
			t.queue = append(t.queue, m.name)
		}
	}
	return t
}

// asOf is t at a time of the server's. It shares the readers of t where all are there still.
func (t truth) asOf(ms int64) truth {
	if t.expiry <= ms {
		t.holder = ""
	}
	ended := func(_ string, expiry int64) bool { return expiry <= ms }
	for id, e := range t.readers {
		if ended(id, e) {
			t.readers = maps.Clone(t.readers)
			maps.DeleteFunc(t.readers, ended)
			break
		}
	}
	return t
}

func (t truth) held() bool { return t.holder != "" || len(t.readers) > 0 }

// holders are the ids of those who hold the lock.
func (t truth) holders() []string {
	var ids []string
	if t.holder != "" {
		ids = append(ids, t.holder)
	}
	for id := range t.readers {
		ids = append(ids, id)
	}
	return ids
}

// state names t for the count of what was covered.
func (t truth) state() string {
	state := "free"
	switch {
	case t.holder != "":
		state = "held"
	case len(t.readers) > 0:
		state = "read"
	}
	if len(t.queue) > 0 {
		state += "+queue"
	}
	return state
}

// ownTokens are the tokens by which readers are known, where those differ from that of all.
func ownTokens(hash map[string]string) (own map[string]int64) {
	for field, text := range hash {
		if id, found := strings.CutPrefix(field, "="); found {
			if own == nil {
				own = make(map[string]int64)
			}
			own[id], _ = strconv.ParseInt(text, 10, 64)
		}
	}
	return own
}
