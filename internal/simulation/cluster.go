package simulation

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// shards is how many masters a cluster has.
	shards = 3

	slots = 16384
)

// A node is what a server knows as one of a cluster. It is guarded by the server's mu.
type node struct {
	world   *world
	shard   int
	masters [shards + 1]claim // the index of a server
	moved   map[int]claim     // the shard of a slot that has left its first
	leaving map[int]int       // to which shard a slot is under way
	coming  map[int]int       // from which shard
	halted  chan struct{}     // scripts wait until it is closed; nil: they do not
	places  map[int]int       // how often each server has come to another address, as far as is known
	unknown map[int]bool      // servers that are none of the cluster, likewise
	missed  map[int]bool      // slots that are coming, of which n does not know any more who has them

	heirs     map[int]int // the shard that has the slots of one that has left
	joined    map[int]int // the shard whose replica a server has become, that was of another
	alone     bool        // it knows no other node
	importers map[int]int // the server that was the master where a slot is under way to, as its move began
	asking    bool        // the command under way may be about a slot that is coming
}

// A claim is what a node has said of itself: the later epoch counts.
type claim struct{ who, epoch int }

// A layout is who has which slots, as the last who were to decide that have done.
type layout struct {
	mu     sync.Mutex
	epoch  int
	moved  map[int]int // the shard of a slot that has left its first
	heirs  map[int]int // the shard that has the slots of one that has left
	moving map[int]int // the shard to which keys of a slot have begun to move

	taken     map[int]bool  // slots that somebody moves
	operators chan struct{} // a place is taken by each who moves slots
	alone     chan struct{} // taken by who takes all of these
}

// homeOf is the shard that a slot is in at first.
func homeOf(slot int) int { return (slot*shards + shards - 1) / slots }

// found makes a cluster of the servers: all know the same.
func (w *world) found() {
	w.layout = &layout{moved: make(map[int]int), moving: make(map[int]int), heirs: make(map[int]int), taken: make(map[int]bool), operators: make(chan struct{}, w.plan.movers()), alone: make(chan struct{}, 1)}
	for i, m := range w.masters() {
		for _, s := range []*server{m, m.replica} {
			s.node = &node{
				world: w, shard: i,
				places: make(map[int]int), unknown: make(map[int]bool),
				moved: make(map[int]claim), leaving: make(map[int]int), coming: make(map[int]int), importers: make(map[int]int), heirs: make(map[int]int), joined: make(map[int]int), missed: make(map[int]bool),
			}
			for j, o := range w.masters() {
				s.node.masters[j].who = o.index
			}
		}
	}
}

// nextEpoch is one that exceeds all before.
func (l *layout) nextEpoch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	return l.epoch
}

// shardOf is the one that has a slot, and the one that may have some of its keys already.
func (l *layout) shardOf(slot int) (at, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, found := l.moved[slot]
	if !found {
		at = homeOf(slot)
		if heir, left := l.heirs[at]; left {
			at = heir
		}
	}
	if next, found = l.moving[slot]; !found {
		next = at
	}
	return at, next
}

// move notes that a slot is on its way, or has arrived if that is where it is already.
func (l *layout) move(slot, to int, arrived bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if arrived {
		l.moved[slot] = to
		delete(l.moving, slot)
	} else {
		l.moving[slot] = to
	}
}

// keepers are the servers that have the keys of a lock: the master of its slot, the one
// to which that is on its way, or all members of a quorum.
func (w *world) keepers(name string) []*server {
	masters := w.masters()
	if w.layout == nil {
		return masters
	}
	at, next := w.layout.shardOf(slotOf(lockKey(name)))
	if at == next {
		return masters[at : at+1]
	}
	return []*server{masters[at], masters[next]}
}

// keeper is the server that decides about a lock.
func (w *world) keeper(name string) *server { return w.keepers(name)[0] }

// lockKey is the first key of a lock.
func lockKey(name string) string { return "dlock:{" + encode(name) + "}" }

// slotOf is the slot that a key is in.
func slotOf(key string) int {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if size := strings.IndexByte(key[from+1:], '}'); size > 0 {
			key = key[from+1 : from+1+size]
		}
	}
	sum := uint16(0)
	for _, c := range []byte(key) {
		sum ^= uint16(c) << 8
		for range 8 {
			carry := sum&0x8000 != 0
			if sum <<= 1; carry {
				sum ^= 0x1021
			}
		}
	}
	return int(sum % slots)
}

// shardOf is the shard that has a slot, as far as the node knows.
func (n *node) shardOf(slot int) int {
	if c, found := n.moved[slot]; found {
		return c.who
	}
	home := homeOf(slot)
	if heir, left := n.heirs[home]; left {
		return heir
	}
	return home
}

// masterOf is the server that has a slot, as far as the node knows.
func (n *node) masterOf(slot int) *server { return n.world.nodes[n.masters[n.shardOf(slot)].who] }

// keysOf are what a command is about: keys, or channels of a shard.
func keysOf(cmd string, args []string) (keys []string, channels bool) {
	switch cmd {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		if len(args) < 2 {
			return nil, false
		}
		n := 0
		_, _ = fmt.Sscan(args[1], &n)
		return args[2:max(min(2+n, len(args)), 2)], false
	case "SSUBSCRIBE", "SUNSUBSCRIBE":
		return args, true
	case "SPUBLISH":
		return args[:min(1, len(args))], true
	case "EXISTS", "DEL":
		return args, false
	}
	if _, found := commands[cmd]; found {
		return args[:min(1, len(args))], false
	}
	return nil, false
}

const (
	errCrossSlot = replyError("CROSSSLOT Keys in request don't hash to the same slot")
	errUnstable  = replyError("TRYAGAIN Multiple keys request during rehashing of slot")
	errDown      = replyError("CLUSTERDOWN The cluster is down")
	errNotHere   = replyError("ERR Script attempted to access a non local key in a cluster node")
	errUnserved  = replyError("CLUSTERDOWN Hash slot not served")
	errDownHere  = replyError("ERR Script attempted to execute a command while the cluster is down")
	errCrossHere = replyError("ERR Script attempted to access keys that do not hash to the same slot")
)

// route says why a node of a cluster does not execute a command, or nil.
func (s *server) route(cmd string, args []string) error {
	keys, channels := keysOf(cmd, args)
	if len(keys) == 0 {
		return nil
	}
	n, slot := s.node, slotOf(keys[0])
	master := n.masterOf(slot)
	_, leaving := n.leaving[slot]
	leaving = leaving && master == s
	_, coming := n.coming[slot]
	coming = coming && !leaving
	several, missing, there := false, 0, 0
	for _, k := range keys {
		if slotOf(k) != slot {
			return errCrossSlot
		}
		several = several || k != keys[0]
		if channels {
			continue
		}
		if s.data.get(k) == nil {
			missing++
		} else {
			there++
		}
	}
	switch {
	case n.alone, n.missed[slot]:
		return errUnserved
	case !channels && (s.isDown() || len(n.missed) > 0):
		return errDown
	case leaving && missing > 0 && there > 0:
		return errUnstable
	case leaving && missing > 0:
		return replyError(fmt.Sprintf("ASK %d %s", slot, n.addressOf(n.importerOf(slot))))
	case coming && n.asking && several && missing > 0:
		return errUnstable
	case coming && n.asking, master == s, channels && s.master == master:
		return nil
	}
	return replyError(fmt.Sprintf("MOVED %d %s", slot, n.addressOf(master)))
}

// routeInside is route for a command of a script.
func (s *server) routeInside(cmd string, args []string) error {
	switch err := s.route(cmd, args); err {
	case nil:
		return nil
	case errDown:
		return errDownHere
	case errCrossSlot:
		return errCrossHere
	default:
		return errNotHere
	}
}

// isDown reports whether the node says that the cluster is.
func (s *server) isDown() bool {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	now := time.Now()
	return !now.Before(s.faults.lonely) && now.Before(s.faults.together)
}

// begin locks the server for a command. On a node it waits until the command can run, or
// returns why it cannot run here.
func (s *server) begin(p *peer, cmd string, args []string) error {
	asking := p.asking
	p.asking = cmd == "ASKING"
	for {
		s.mu.Lock()
		s.data.now = s.clock().UnixMilli()
		if s.node == nil {
			return nil
		}
		s.node.asking = asking
		halted := s.node.halted
		if err := s.route(cmd, args); err != nil || halted == nil || cmd != "EVAL" && cmd != "EVALSHA" {
			return err
		}
		s.mu.Unlock()
		<-halted
	}
}

// clusterCommand answers CLUSTER.
func (s *server) clusterCommand(args []string) (any, error) {
	if len(args) == 1 && strings.EqualFold(args[0], "slots") {
		return s.clusterSlots(), nil
	}
	return nil, replyError("ERR unknown subcommand. Try CLUSTER HELP.")
}

// clusterSlots is who has which slots, by ranges.
func (s *server) clusterSlots() []any {
	n := s.node
	borders := []int{0}
	for slot := range n.moved {
		borders = append(borders, slot, slot+1)
	}
	for slot := range n.missed {
		borders = append(borders, slot, slot+1)
	}
	for i := 1; i < shards; i++ {
		borders = append(borders, i*slots/shards)
	}
	slices.Sort(borders)
	borders = append(slices.Compact(borders), slots)
	all := []any{}
	for i, from := range borders[:len(borders)-1] {
		if from >= slots {
			break
		}
		if n.alone || n.missed[from] {
			continue
		}
		shard := n.shardOf(from)
		master := n.masters[shard].who
		servers := []any{n.place(n.world.nodes[master])}
		for _, o := range n.world.nodes {
			if n.shardHas(o) == shard && o.index != master && !n.unknown[o.index] {
				servers = append(servers, n.place(o))
			}
		}
		all = append(all, append([]any{int64(from), int64(min(borders[i+1], slots) - 1)}, servers...))
	}
	return all
}

// place is a server as CLUSTER SLOTS names it.
func (n *node) place(s *server) any {
	host, port, _ := net.SplitHostPort(n.addressOf(s))
	number := int64(0)
	_, _ = fmt.Sscan(port, &number)
	return []any{host, number, fmt.Sprintf("%040x", s.index+1), []any{}}
}

// clusterClient returns a client of the cluster.
func (w *world) clusterClient(i int) *goredis.ClusterClient {
	o := w.options(i, 0)
	c := &goredis.ClusterOptions{
		ClientName: o.ClientName, Username: user, Password: user, CredentialsProviderContext: w.provider(),
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled, DisableIdentity: o.DisableIdentity,
		Protocol: o.Protocol, PoolSize: o.PoolSize,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
		ReadTimeout:              o.ReadTimeout, WriteTimeout: o.WriteTimeout, DialTimeout: o.DialTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime,
		ConnMaxLifetime: o.ConnMaxLifetime, MinIdleConns: o.MinIdleConns, PoolTimeout: o.PoolTimeout,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		Dialer: w.dialer(i),
	}
	for _, s := range w.foundingNodes() {
		c.Addrs = append(c.Addrs, s.address())
	}
	c.MaxActiveConns, c.PipelinePoolSize, c.PoolFIFO = o.MaxActiveConns, o.PipelinePoolSize, o.PoolFIFO
	c.OnConnect, c.StreamingCredentialsProvider = o.OnConnect, o.StreamingCredentialsProvider
	g := goredis.NewClusterClient(c)
	if w.plan.Clients[i].Own == nil {
		g.OnNewNode(func(n *goredis.Client) { n.AddHook(slotsHook{}) })
	}
	w.hooked(g, i, 0)
	return g
}

// shards is how many masters the cluster of a plan has, 0 if there is none.
func (p *Plan) shards() int {
	switch {
	case p.Cluster && p.Grows:
		return shards + 1
	case p.Cluster:
		return shards
	}
	return 0
}

// foundingNodes are those that a cluster has at first.
func (w *world) foundingNodes() []*server {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(s *server) bool { return s.node.shard == added })
}

// hits reports whether a fault is about the server that has a lock.
func (w *world) hits(f Fault, name string) bool {
	return w.layout == nil || f.Kind == "die" || f.Server == everywhere || w.keeper(name) == w.master(f.Server)
}

// at is what servers have of a lock together, since one of them changed it last: while its
// slot moves, each key is on one.
func (l *lockLog) at(keepers []*server) truth {
	t := l.last[keepers[0].index]
	for _, s := range keepers[1:] {
		o := l.last[s.index]
		if o.at.After(t.at) {
			t.at = o.at
		}
		if t.holder == "" {
			t.holder, t.expiry = o.holder, o.expiry
		}
		t.token = max(t.token, o.token)
		if len(t.readers) == 0 {
			t.readers = o.readers
		}
		if len(t.queue) == 0 {
			t.queue = o.queue
		}
	}
	return t
}

// spread has the other servers of the shard hear of a message: they are not counted.
func (s *server) spread(topic, text string) {
	n := s.node
	for _, o := range n.world.nodes {
		if o != s && n.shardHas(o) == n.shard && !n.unknown[o.index] {
			time.AfterFunc(s.node.world.plan.Lag, func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.publish(messageKind("SPUBLISH"), topic, text)
			})
		}
	}
}
