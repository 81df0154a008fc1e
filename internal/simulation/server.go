package simulation

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	redis "github.com/alicebob/miniredis/v2/server"
)

// A server is a simulated Redis. Commands run one at a time, and after each of them
// the state of the locks it named is read from the data: that is the truth.
type server struct {
	index int
	mini  *miniredis.Miniredis
	saw   func(s *server, name string, t truth) // called when the state of a lock has changed

	executing atomic.Pointer[redis.Peer] // whose command is being executed, under mu

	clients sync.Map // name of a client by the id that it has in the library

	mu      sync.Mutex
	truths  map[string]truth // by name of the lock
	peers   map[*redis.Peer]bool
	run     int // how often it has started
	since   time.Time
	scripts bool   // it has run some
	wrote   bool   // the script under way has written something
	refused string // with what it was refused a command

	faults struct {
		mu     sync.Mutex
		down   time.Time // accepts nobody until then
		paused time.Time // executes nothing until then
		all    refusal   // of every command
		writes refusal   // of every write
		full   time.Time // no memory until then
		skew   time.Duration
		drift  float64 // of the clock, in parts
		origin time.Time
	}
}

// A refusal is what a server says instead of doing anything until a time.
type refusal struct {
	text  string
	until time.Time
}

func (r refusal) now() bool { return time.Now().Before(r.until) }

// A truth is the state of one lock as the server has it.
type truth struct {
	at      time.Time // by the clock of the world
	holder  string    // id
	expiry  int64     // ms, by the clock of the server
	token   int64
	readers map[string]int64 // expiry by id
	queue   []string         // ids
}

func newServer(index int, drift float64, saw func(*server, string, truth)) (*server, error) {
	s := &server{
		index: index, mini: miniredis.NewMiniRedis(), saw: saw,
		truths: make(map[string]truth), peers: make(map[*redis.Peer]bool),
		since: time.Now().Add(-time.Hour), // a member of a quorum must have kept its data for a while
	}
	s.faults.drift, s.faults.origin = drift, time.Now()
	first, err := s.mini.Dial() // which starts a server without a listener
	if err != nil {
		return nil, err
	}
	s.mini.ClockTTL(true)
	s.mini.Server().SetPreHook(s.hook)
	s.mini.HSet("dlock:boot", "since", strconv.FormatInt(s.since.UnixMicro(), 10), "run", s.runID())
	return s, first.Close()
}

func (s *server) serve(c net.Conn) { s.mini.Server().ServeConn(c) }

// accepts reports whether somebody listens.
func (s *server) accepts() bool {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return !time.Now().Before(s.faults.down)
}

// clock is the time by the clock of the server.
func (s *server) clock() time.Time {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	now := time.Now()
	gone := now.Sub(s.faults.origin)
	return now.Add(s.faults.skew + time.Duration(float64(gone)*s.faults.drift))
}

// step sets the clock.
func (s *server) step(d time.Duration) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.skew += d
}

// hook runs before each command: of a client first, and then of its script.
func (s *server) hook(p *redis.Peer, cmd string, args ...string) bool {
	switch {
	case s.executing.Load() == p:
		return false
	case s.isClient(p):
		s.execute(p, cmd, args)
		return true
	}
	return s.inScript(p, cmd, args)
}

// isClient tells the connection of a client, which has no state before its first
// command, from the one that a script has.
func (s *server) isClient(p *redis.Peer) bool {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	if p.Ctx == nil {
		s.peers[p] = true
		p.OnDisconnect(func() {
			s.faults.mu.Lock()
			defer s.faults.mu.Unlock()
			delete(s.peers, p)
		})
	}
	return s.peers[p]
}

// execute runs a command of a client.
func (s *server) execute(p *redis.Peer, cmd string, args []string) {
	s.faults.mu.Lock()
	pause := time.Until(s.faults.paused)
	s.faults.mu.Unlock()
	handshake := cmd == "HELLO" || cmd == "CLIENT" // see dial
	if pause > 0 && !handshake {
		time.Sleep(pause)
	}
	s.faults.mu.Lock()
	all := s.faults.all
	s.faults.mu.Unlock()
	if all.now() && !handshake {
		p.WriteError(all.text)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mini.SetTime(s.clock())
	if cmd != "EVAL" && cmd != "EVALSHA" {
		if !s.answer(p, cmd, args) {
			s.dispatch(p, append([]string{cmd}, args...))
		}
		return
	}
	s.learn(p.ClientName, args)
	s.script(p, append([]string{cmd}, args...))
	for name := range locksOf(args) {
		s.look(name)
	}
}

func (s *server) dispatch(p *redis.Peer, command []string) {
	s.executing.Store(p)
	s.mini.Server().Dispatch(p, command)
	s.executing.Store(nil)
}

// script runs a script. Where a command of it was refused, the error is that of the
// command, as with Redis; miniredis puts words of its own before it.
func (s *server) script(p *redis.Peer, command []string) {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	inner := redis.NewPeer(w)
	inner.Ctx, inner.Resp3 = p.Ctx, p.Resp3
	s.wrote, s.refused = false, ""
	s.dispatch(inner, command)
	s.scripts = true
	_ = w.Flush()
	reply := out.String()
	if strings.HasPrefix(reply, "-ERR Error") && s.refused != "" {
		reply = "-" + s.refused + "\r\n"
	}
	p.WriteRaw(reply)
}

// What of a command of a script matters to a server that refuses some.
var writes = map[string]bool{ // and whether it needs memory
	"HSET": true, "ZADD": true,
	"HDEL": false, "ZREM": false, "PEXPIRE": false, "ZREMRANGEBYSCORE": false,
}

// inScript runs before each command of a script.
func (s *server) inScript(p *redis.Peer, cmd string, args []string) bool {
	s.faults.mu.Lock()
	readonly, full := s.faults.writes, time.Now().Before(s.faults.full)
	s.faults.mu.Unlock()
	if grows, is := writes[cmd]; is {
		switch {
		case readonly.now():
			s.refused = readonly.text
		case full && grows && !s.wrote:
			s.refused = "OOM command not allowed when used memory > 'maxmemory'."
		default:
			s.wrote = true
			return false
		}
		p.WriteError(s.refused)
		return true
	}
	return s.answer(p, cmd, args)
}

// answer answers what miniredis does not know.
func (s *server) answer(p *redis.Peer, cmd string, args []string) bool {
	switch {
	case cmd == "INFO" && len(args) == 1 && args[0] == "server":
		p.WriteBulk(fmt.Sprintf("# Server\r\nredis_version:7.4.0\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n",
			s.runID(), int(time.Since(s.since).Seconds())))
	case cmd == "INFO" && len(args) == 1 && args[0] == "commandstats":
		p.WriteBulk(s.stats())
	case cmd == "CONFIG":
		p.WriteLen(0)
	default:
		return false
	}
	return true
}

func (s *server) runID() string { return fmt.Sprintf("%040x", s.run+1) }

func (s *server) stats() string {
	if s.scripts {
		return "# Commandstats\r\ncmdstat_evalsha:calls=1\r\n"
	}
	return "# Commandstats\r\n"
}

var (
	idForm   = regexp.MustCompile(`^[wr]\d+p?(?:v\d+)?:([0-9a-f]{32}):`)
	lockForm = regexp.MustCompile(`^dlock:\{([^}]*)\}`)
)

// learn notes which client makes which ids. Only its own requests for a lock carry
// an id that is not known.
func (s *server) learn(client string, args []string) {
	for _, a := range args {
		if m := idForm.FindStringSubmatch(a); m != nil {
			s.clients.LoadOrStore(m[1], client)
		}
	}
}

// owner names the client that made an id.
func (s *server) owner(id string) string {
	if m := idForm.FindStringSubmatch(id); m != nil {
		name, _ := s.clients.Load(m[1])
		text, _ := name.(string)
		return text
	}
	return ""
}

func locksOf(args []string) map[string]bool {
	names := make(map[string]bool)
	if len(args) < 2 {
		return names
	}
	n, _ := strconv.Atoi(args[1])
	for _, k := range args[2:min(len(args), 2+n)] {
		if m := lockForm.FindStringSubmatch(k); m != nil {
			names[m[1]] = true
		}
	}
	return names
}

// look reads the state of a lock, and tells of a change. It is called with mu held.
func (s *server) look(name string) {
	t := s.read(name)
	old := s.truths[name]
	if old.holder == t.holder && old.expiry == t.expiry && old.token == t.token &&
		slices.Equal(old.queue, t.queue) && sameReaders(old.readers, t.readers) {
		return
	}
	s.truths[name] = t
	s.saw(s, name, t)
}

func sameReaders(a, b map[string]int64) bool {
	if len(a) != len(b) {
		return false
	}
	for id, e := range a {
		if b[id] != e {
			return false
		}
	}
	return true
}

func (s *server) read(name string) truth {
	key := "dlock:{" + name + "}"
	t := truth{at: time.Now(), holder: s.mini.HGet(key, "o")}
	t.expiry, _ = strconv.ParseInt(s.mini.HGet(key, "e"), 10, 64)
	t.token, _ = strconv.ParseInt(s.mini.HGet(key, "t"), 10, 64)
	if s.mini.Exists(key + ":r") {
		set, _ := s.mini.SortedSet(key + ":r")
		t.readers = make(map[string]int64)
		for id, e := range set {
			t.readers[id] = int64(e)
		}
	}
	if s.mini.Exists(key + ":q") {
		t.queue, _ = s.mini.ZMembers(key + ":q")
	}
	return t
}

// asOf is t at a time of the server's.
func (t truth) asOf(ms int64) truth {
	if t.expiry <= ms {
		t.holder = ""
	}
	if len(t.readers) == 0 {
		return t
	}
	live := make(map[string]int64)
	for id, e := range t.readers {
		if e > ms {
			live[id] = e
		}
	}
	t.readers = live
	return t
}

func (t truth) held() bool { return t.holder != "" || len(t.readers) > 0 }

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

// A copy is all the data of a server.
type dataCopy map[string]copied

type copied struct {
	hash map[string]string
	set  map[string]float64
	ttl  time.Duration
	at   time.Time
}

func (s *server) save() dataCopy {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(dataCopy)
	for _, k := range s.mini.Keys() {
		c := copied{ttl: s.mini.TTL(k), at: time.Now()}
		if s.mini.Type(k) == "hash" {
			c.hash = make(map[string]string)
			fields, _ := s.mini.HKeys(k)
			for _, f := range fields {
				c.hash[f] = s.mini.HGet(k, f)
			}
		} else {
			c.set, _ = s.mini.SortedSet(k)
		}
		all[k] = c
	}
	return all
}

// restart ends what the server had in hand: its data becomes that of a copy, unless
// that is nil, scripts are forgotten, and nobody is let in for a time.
func (s *server) restart(with dataCopy, lost bool, away time.Duration) {
	s.faults.mu.Lock()
	s.faults.down = time.Now().Add(away)
	s.faults.mu.Unlock()
	s.forgetScripts()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	s.scripts = false
	s.since = time.Now()
	if !lost {
		return
	}
	s.mini.FlushAll()
	for k, c := range with {
		left := c.ttl - time.Since(c.at)
		if c.ttl > 0 && left <= 0 {
			continue
		}
		for f, v := range c.hash {
			s.mini.HSet(k, f, v)
		}
		for m, score := range c.set {
			_, _ = s.mini.ZAdd(k, score, m)
		}
		if c.ttl > 0 {
			s.mini.SetTTL(k, left)
		}
	}
	for name := range s.truths {
		s.look(name)
	}
}

func (s *server) forgetScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := redis.NewPeer(bufio.NewWriter(&bytes.Buffer{}))
	s.dispatch(p, []string{"SCRIPT", "FLUSH"})
}

func (s *server) close() { s.mini.Close() }
