package simulation

import (
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A server is a simulated Redis. Commands run one at a time, and after each script the
// state of the locks it named is read from the data: that is the truth.
type server struct {
	index   int
	saw     func(s *server, name string, t truth)       // called when the state of a lock has changed
	asked   func(client string)                         // called for each script that a client runs
	came    func(s *server, client string)              // called for each command that comes; nil: nobody counts
	admits  func(login []string) bool                   // whether who logs in has the password; nil: all have
	answers func(s *server, client string, master bool) // called for each PING; nil: nobody looks
	trace   func(format string, args ...any)            // called for each command that is executed; nil: nobody looks
	owners  *sync.Map                                   // name of a client by the id that it has in the library
	world   *world                                      // where faults wait for what it does; nil: none does
	noted   func(s *server, client string)              // called for each command and script that has written; nil: nobody looks
	pages   int                                         // in which SCAN tells of the keys there are; 0: one
	lost    func(client string, all []loss)             // called when a client has been told of losses; nil: nobody looks

	mu      sync.Mutex
	data    *store
	lua     *interpreter
	scripts map[string]string // by their digest
	topics  map[string]map[*peer]bool
	peers   map[*peer]bool
	truths  map[string]truth // by name of the lock
	run     int              // how often it has started
	since   time.Time        // when it has started, by its own clock: that is how INFO tells its uptime
	used    bool             // it has run scripts since then that may write
	fails   bool             // it has refused scripts since then that may
	asks    bool             // it has run scripts since then that may not
	marked  atomic.Bool      // it has run scripts that may write, since then or before
	wrote   bool             // the script under way has written something
	asker   string           // whose it is
	old     bool             // WAIT asks for all that was written, as until Redis 7.0, and not for what the connection has

	ancient bool    // it is of Redis 6.2
	master  *server // that it follows, nil if it is one itself
	replica *server // that follows it, if any
	link    replication
	node    *node        // nil unless it is one of a cluster
	places  atomic.Int32 // how often it has come to another address

	faults struct {
		mu     sync.Mutex
		down   time.Time // accepts nobody until then
		paused time.Time // executes nothing until then
		halted time.Time // executes nothing that writes until then
		all    refusal   // of every command
		writes refusal   // of every write
		full   time.Time // no memory until then
		skew   time.Duration
		drift  float64 // of the clock, in parts
		origin time.Time

		denials // of what is in order

		forgotten        time.Time // it is none of the cluster until then
		durable, returns bool      // every write is on disk before its reply; likewise once it has restarted

		lonely, together time.Time // between them a node says that the cluster is down
	}
}

// A refusal is what a server says instead of doing anything until a time.
type refusal struct {
	text  string
	until time.Time
}

func (r refusal) now() bool { return time.Now().Before(r.until) }

const (
	errReadOnly = replyError("READONLY You can't write against a read only replica.")
	errFull     = replyError("OOM command not allowed when used memory > 'maxmemory'.")
	errNoScript = replyError("NOSCRIPT No matching script. Please use EVAL.")
)

func newServer(index int, drift float64, owners *sync.Map, saw func(*server, string, truth), asked func(string)) *server {
	s := &server{
		index: index, saw: saw, asked: asked, owners: owners,
		data: newStore(), scripts: make(map[string]string),
		topics: make(map[string]map[*peer]bool), peers: make(map[*peer]bool),
		truths: make(map[string]truth),
		since:  time.Now().Add(-time.Hour), // a member of a quorum must have kept its data for a while
	}
	s.lua = interpret(s.fromScript)
	s.faults.drift, s.faults.origin = drift, time.Now()
	s.data.values["dlock:boot"] = s.remembers()
	return s
}

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

// execute runs a command of a client.
func (s *server) execute(p *peer, cmd string, args []string) {
	// The client library repeats the login of a subscription with a mutex held; see dial.
	handshake := cmd == "HELLO" || cmd == "AUTH" || cmd == "CLIENT"
	if !handshake && s.came != nil {
		s.came(s, p.name)
	}
	if !handshake {
		if pause := s.pause(); pause > 0 {
			if p.isQuick() {
				_ = p.conn.Close()
				return
			}
			time.Sleep(pause)
		}
		s.faults.mu.Lock()
		all := s.faults.all
		s.faults.mu.Unlock()
		if all.now() {
			p.reply(nil, replyError(all.text))
			return
		}
	}
	s.awaitWrites(p, cmd)
	if err := s.denies(p, cmd, args); err != nil {
		s.traces(p, cmd, args, nil, err)
		p.reply(nil, err)
		return
	}
	if cmd == "WAIT" {
		p.flush() // what was asked before is answered at once
		p.reply(s.wait(p, args))
		return
	}
	s.begins(p, cmd, args)
	err := s.begin(p, cmd, args)
	defer s.mu.Unlock()
	if p.run != s.run { // what a server had in hand ends with it
		_ = p.conn.Close()
		return
	}
	if err != nil {
		s.traces(p, cmd, args, nil, err)
		p.reply(nil, err)
		return
	}
	s.hears(p, cmd)
	before := s.link.sent
	defer func() { // with mu held
		if s.link.sent != before {
			p.wrote = s.link.sent
		}
	}()
	switch cmd {
	case "EVAL", "EVALSHA", "EVAL_RO":
		s.sees(p, cmd, args)
		reply, err := s.script(s.speaker(p.name, args), cmd, args)
		s.did(p, err)
		s.traces(p, cmd, args, reply, err)
		p.reply(reply, err)
		p.notes(s.sourceOf(cmd, args), args, reply)
		p.breaks()
	case "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE":
		s.subscription(p, cmd, args)
	case "CLUSTER":
		p.reply(s.clusterCommand(args))
	case "ASKING", "SELECT":
		p.reply(status("OK"), nil)
	case "AUTH":
		p.reply(status("OK"), nil)
		s.logsIn()
	case "PING":
		s.ping(p, args)
	case "HELLO":
		p.resp3 = len(args) > 0 && args[0] == "3"
		p.reply(s.hello(p), nil)
	case "CLIENT":
		if len(args) == 2 && strings.EqualFold(args[0], "SETNAME") {
			p.name = args[1]
			s.isReady(p.name)
		}
		p.reply(status("OK"), nil)
	default:
		s.wrote = false
		reply, err := s.do(append([]string{cmd}, args...))
		p.reply(reply, err)
		if s.data.hasChanged(cmd, reply) { // who leaves an old master deletes what is not there
			s.writes(p.name)
		}
		s.replicate()
	}
}

// traces tells what a client has asked, and what it is told.
func (s *server) traces(p *peer, cmd string, args []string, reply any, err error) {
	if s.trace == nil {
		return
	}
	if len(args) > 0 && len(args[0]) > 40 { // a script
		args = append([]string{sha(args[0])}, args[1:]...)
	}
	if err != nil {
		reply = err
	}
	number := 0
	if c, ours := p.conn.(*conn); ours && c.link != nil {
		number = c.link.number
	}
	s.trace("s%d %s#%d %s %v: %v", s.index, p.name, number, cmd, args, reply)
}

func (s *server) pause() time.Duration {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return time.Until(s.faults.paused)
}

// refusesWrites reports whether the server says that it is a replica.
func (s *server) refusesWrites() bool {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return s.faults.writes.now() && s.faults.writes.text != string(errNoReplicas)
}

func (s *server) hello(p *peer) fields {
	version, role, mode := int64(2), "master", "standalone"
	if p.resp3 {
		version = 3
	}
	if s.master != nil || s.refusesWrites() {
		role = "replica"
	}
	if s.node != nil {
		mode = "cluster"
	}
	return fields{
		"server", "redis", "version", s.version(), "proto", version, "id", int64(1),
		"mode", mode, "role", role, "modules", []any{},
	}
}

// script runs a script, and looks what has become of the locks that it named.
func (s *server) script(client, cmd string, args []string) (any, error) {
	if len(args) < 2 {
		return nil, errSyntax
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 0 || n > len(args)-2 {
		return nil, errNoInteger
	}
	digest, source := args[0], s.scripts[args[0]]
	switch {
	case cmd != "EVALSHA":
		digest, source = sha(args[0]), args[0]
		s.scripts[digest] = source
	case source == "":
		s.fails = true
		s.runs(client, "", nil)
		return nil, errNoScript
	}
	s.asker, s.wrote = client, false
	s.learn(client, args[2+n:])
	s.asked(client)
	keys := args[2 : 2+n]
	s.runs(client, source, keys)
	reply, err := s.lua.run(digest, source, keys, args[2+n:])
	s.isBelieved(client, source, keys, args[2+n:], reply, err)
	switch { // no script counts itself
	case err != nil:
		s.fails = true
	case cmd == "EVAL_RO":
		s.asks = true
	default:
		s.used = true
		s.marked.Store(true)
	}
	s.writes(client)
	s.replicate()
	for _, name := range locksOf(keys) {
		s.look(name, true)
	}
	return reply, err
}

// fromScript executes a command of a script.
func (s *server) fromScript(args []string) (any, error) {
	if len(args) == 0 {
		return nil, errSyntax
	}
	args[0] = strings.ToUpper(args[0])
	if err := s.deniesInside(args[0]); err != nil {
		return nil, err
	}
	if s.node != nil {
		if err := s.routeInside(args[0], args[1:]); err != nil {
			return nil, err
		}
	}
	return s.do(args)
}

// do executes a command that needs no connection. It is called with mu held.
func (s *server) do(args []string) (any, error) {
	name := args[0]
	if c, found := commands[name]; found {
		return s.access(c, args)
	}
	switch name {
	case "TIME":
		us := s.clock().UnixMicro()
		return []any{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)}, nil
	case "PUBLISH", "SPUBLISH":
		if !s.knows(name) {
			break
		}
		if len(args) != 3 {
			return nil, errSyntax
		}
		if s.node != nil {
			s.spread(args[1], args[2])
		} else {
			s.note(args)
		}
		return int64(s.publish(messageKind(name), args[1], args[2])), nil
	case "PUBSUB":
		return s.count(args[1:])
	case "COMMAND": // a client of a cluster asks what there is, and does without
		return []any{}, nil
	case "INFO":
		return s.info(), nil
	case "CONFIG":
		return s.settings(args), nil
	case "SCAN":
		return s.scan(args), nil
	case "SCRIPT":
		clear(s.scripts)
		return status("OK"), nil
	}
	return nil, replyError("ERR unknown command '" + name + "'")
}

// access executes a command about data. A full server refuses what needs memory, but
// in a script that has written something already.
func (s *server) access(c command, args []string) (any, error) {
	if c.writes {
		s.faults.mu.Lock()
		refused, full := s.faults.writes, time.Now().Before(s.faults.full)
		s.faults.mu.Unlock()
		switch {
		case s.master != nil:
			return nil, errReadOnly
		case refused.now():
			return nil, replyError(refused.text)
		case full && c.grows && !s.wrote:
			return nil, errFull
		}
	}
	reply, err := c.call(s.data, args[0], args[1:])
	if c.writes && err == nil {
		s.wrote = true
		if s.data.hasChanged(args[0], reply) {
			s.note(args)
		}
	}
	return reply, err
}

func (s *server) info() string {
	stats, role, replicas := "", "master", 0
	if s.replica != nil {
		replicas = 1
	}
	if s.used {
		stats = "cmdstat_evalsha:calls=1,failed_calls=0\r\n"
	} else if s.fails {
		stats = "cmdstat_evalsha:calls=1,failed_calls=1\r\n"
	}
	if s.asks {
		stats += "cmdstat_eval_ro:calls=1\r\n"
	}
	if s.master != nil {
		role = "slave"
	}
	return fmt.Sprintf("# Server\r\nredis_version:%s\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n"+
		"# Replication\r\nrole:%s\r\nconnected_slaves:%d\r\n# Commandstats\r\n%s",
		s.version(), s.runID(), int(s.clock().Sub(s.since).Seconds()), role, replicas, stats)
}

func (s *server) runID() string { return fmt.Sprintf("%038x%02x", s.run+1, s.index) }

// writes tells of what a client has just written.
func (s *server) writes(client string) {
	if s.wrote && s.noted != nil {
		s.noted(s, client)
	}
}

// scan tells the keys that match, or all there are: at once, or in pages, of which most have none.
func (s *server) scan(args []string) any {
	pattern := "*"
	if i := slices.IndexFunc(args, func(a string) bool { return strings.EqualFold(a, "MATCH") }); i >= 0 && i+1 < len(args) {
		pattern = args[i+1]
	}
	page, next := 0, "0"
	if len(args) > 1 {
		page, _ = strconv.Atoi(args[1])
	}
	if page+1 < s.pages {
		next = strconv.Itoa(page + 1)
	}
	keys := []any{}
	for k := range s.data.values {
		if ok, _ := path.Match(pattern, k); ok && s.data.get(k) != nil && s.pageOf(k) == page {
			keys = append(keys, k)
		}
	}
	return []any{next, keys}
}

// A copy of the data is what a server may start with.
func (s *server) save() *store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data.copy()
}

// restart ends what the server had in hand: its data becomes another unless that is
// nil, scripts are forgotten, and nobody is let in for a time.
func (s *server) restart(with *store, away time.Duration) {
	s.faults.mu.Lock()
	s.faults.down = time.Now().Add(away)
	s.faults.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.scripts)
	s.run++
	s.used, s.fails, s.asks = false, false, false
	s.since = s.clock().Add(away)
	s.resettles()
	if with == nil {
		return
	}
	s.getsOlder(with)
	s.data.now = s.clock().UnixMilli()
	s.resync()
	s.lookAll()
}

// flush deletes all data, as FLUSHALL does.
func (s *server) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = newStore()
	s.data.now = s.clock().UnixMilli()
	s.resync()
	s.lookAll()
}

// evict deletes one key, as a server does that may when it is full, or somebody by hand.
func (s *server) evict(draws func(n int) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data.now = s.clock().UnixMilli()
	keys := slices.Sorted(maps.Keys(s.data.values))
	if len(keys) == 0 {
		return
	}
	key := keys[draws(len(keys))]
	delete(s.data.values, key)
	s.send(effect{args: []string{"DEL", key}})
	s.lookAll()
}

func (s *server) forgetScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.scripts)
}

// close ends all connections.
func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		_ = p.conn.Close()
	}
	s.lua.release()
}

// remembers is the mark of a server that has kept its data since it began.
func (s *server) remembers() *value {
	return &value{hash: map[string]string{"since": strconv.FormatInt(s.since.UnixMicro(), 10), "run": s.runID()}}
}

// pageOf is the page of SCAN on which a key stands.
func (s *server) pageOf(key string) int {
	if s.pages == 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(s.pages))
}
