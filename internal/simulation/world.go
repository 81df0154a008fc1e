package simulation

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/backend/quorum"
	"github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

// A Result is what became of a plan.
type Result struct {
	Seed       uint64
	Violations []Violation
	History    []Event `json:",omitempty"`
	Coverage   map[string]int
	Virtual    time.Duration // in which the parties had something to do
	CPU        time.Duration // that the process has used for it
	Grants     int
	Faults     int
}

// A world is one run of a plan.
type world struct {
	plan      *Plan
	reg       *register
	net       *network
	owners    sync.Map // of ids; see server
	nodes     []*server
	sentinels []*sentinel
	now       atomic.Pointer[[]*server] // the masters
	layout    *layout                   // of a cluster; nil: it is none
	shelf     *memory.Server
	shelves   *shelves // of a quorum in memory; nil: it is none
	clients   []*client
	triggers  triggers
	stops     stops
	kept      sync.Map     // of a pair of client and place: the server that it dials there, if not the master
	back      atomic.Int64 // ns by which clocks of servers were set back
	on        atomic.Int64 // likewise, by which they went on
	vault     vault
	takenAway takenAway
	spelt     sync.Once
	spellings []string
	labels    []string // of the clients

	receptions map[flight]*reception
	streaming  map[int]*stream // by client; guarded by the mutex of the network

	wall wallClock

	circuits struct {
		mu  sync.Mutex
		all []*circuit
	}

	over  context.Context // when the parties stop
	freed chan struct{}   // when all clients are closed
	stop  context.CancelFunc
}

// A client is one party, with connections of its own.
type client struct {
	*dlock.Client
	index   int
	hooks   *listener
	log     *logBook // nil: it has no logger
	byName  *dlock.NamedLocks
	shared  []goredis.UniversalClient
	dead    atomic.Bool
	process slowsync.Process
	still   atomic.Int32  // how many faults have it stand still
	closed  chan struct{} // when it is to be closed
	closes  chan struct{} // when Close is called
}

// Run runs a plan in a bubble of its own.
func Run(t *testing.T, p *Plan) *Result {
	var result *Result
	synctest.Test(t, func(t *testing.T) { result = run(p) })
	// What a pool keeps belongs to the bubble that made it: timers and channels.
	runtime.GC()
	runtime.GC()
	return result
}

func run(p *Plan) *Result {
	w := &world{plan: p, net: newNetwork(p.Seed), freed: make(chan struct{}), receptions: make(map[flight]*reception), streaming: make(map[int]*stream)}
	for i := range p.Clients {
		w.labels = append(w.labels, "c"+strconv.Itoa(i))
	}
	w.net.comesTo = w.stops.comesTo
	slowsync.Stop(w.stops.atMutex(p))
	w.reg = newRegister(w)
	w.net.dials = w.reg.dials
	w.net.forgets, w.net.forgot, w.net.ends = p.Forgets, w.reg.forgot, p.Ends
	w.over, w.stop = context.WithCancel(context.Background())
	if err := w.open(); err != nil {
		w.reg.violate("the world opens", "%v", err)
		return w.result()
	}
	watched, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		w.reg.watch(watched)
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.live()
	}()
	w.act(ended)
	close(watched)
	<-watching
	w.close()
	return w.result()
}

func (w *world) result() *Result {
	r := w.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Result{
		Seed: w.plan.Seed, Violations: r.violations, History: r.history, Coverage: r.coverage,
		Virtual: r.active, Grants: r.grants, Faults: len(r.touches),
	}
}

// names are those of all locks that a client may ask for, with its prefix.
func (w *world) names() []string {
	w.spelt.Do(func() { w.spellings = w.plan.allNames() })
	return w.spellings
}

// nameOf is a letter, for the first of them.
func nameOf(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return "n" + strconv.Itoa(i)
}

// indexOf is the client with a label, -1 if there is none.
func (w *world) indexOf(label string) int { return slices.Index(w.labels, label) }

// label is what servers know a client by, and what they know nobody by if it is none.
func (w *world) label(client int) string {
	if client < 0 {
		return "nobody"
	}
	return w.labels[client]
}

func (w *world) steppedBack() time.Duration { return time.Duration(w.back.Load()) }

func (w *world) open() error {
	switch {
	case w.plan.Backend == "memory":
		w.shelf = memory.NewServer()
	case w.plan.Shelves:
		if err := w.furnish(); err != nil {
			return err
		}
	default:
		w.start()
	}
	w.losesPatience()
	for i := range w.plan.Clients {
		c := &client{index: i, closed: make(chan struct{}), closes: make(chan struct{}), process: slowsync.NewProcess(w.label(i))}
		w.clients = append(w.clients, c)
		if w.plan.Clients[i].After > 0 || w.plan.Clients[i].Fleeting != "" {
			continue
		}
		var err error
		c.process.Run(func() { err = w.connect(c) })
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts the servers: a master for each place, and its replica where it has one.
func (w *world) start() {
	node := func() *server {
		s := newServer(len(w.nodes), w.plan.driftOf(len(w.nodes)), &w.owners, w.reg.saw, w.reg.counts)
		s.came, s.answers, s.admits, s.old = w.reg.came, w.reg.answers, w.admits, w.plan.Seed%4 == 0
		s.world = w
		s.pages, s.noted = w.plan.Pages, w.reg.hasWritten
		s.lost = w.reg.lost
		if s.isAhead(w.plan.Ahead); w.plan.Fresh {
			s.data = newStore()
		}
		if s.index < len(w.plan.Skews) {
			s.faults.skew += w.plan.Skews[s.index]
		}
		s.faults.durable = slices.Contains(w.plan.Durable, s.index)
		if slices.Contains(w.plan.Old, s.index) {
			s.age()
		}
		if w.plan.Trace {
			s.trace = func(format string, args ...any) { w.reg.tell(-1, format, args...) }
		}
		w.nodes = append(w.nodes, s)
		return s
	}
	var masters []*server
	for range max(w.plan.Servers, w.plan.shards()) {
		masters = append(masters, node())
	}
	w.now.Store(&masters)
	if w.plan.Replica {
		for _, m := range masters {
			m.followedBy(node(), w.plan.Lag)
		}
	}
	if w.plan.Cluster {
		w.found()
	}
	if w.plan.Sentinels {
		for i := range sentinels {
			w.sentinels = append(w.sentinels, &sentinel{index: i, word: masters[0], peers: make(map[*peer]bool)})
		}
	}
}

// masters are the servers that the addresses of the clients stand for.
func (w *world) masters() []*server {
	if now := w.now.Load(); now != nil {
		return *now
	}
	return nil
}

func (w *world) master(place int) *server { return w.masters()[place] }

func (w *world) hasServers() bool { return len(w.masters()) > 0 }

// knowsFaults reports whether all that can cost a lease is a fault of the plan: a single server in memory
// has none.
func (w *world) knowsFaults() bool { return w.hasServers() || w.shelves != nil }

func (w *world) connect(c *client) error {
	i := c.index
	members := w.members(c)
	var b backend.Backend
	switch w.plan.Backend {
	case "memory":
		b = memory.New(w.shelf)
		if w.plan.Most > 0 {
			b = stingy{memory.New(w.shelf), w.plan.Most}
		}
	case "quorum":
		q, err := quorum.New(members, &quorum.Options{Need: w.plan.need(), MaxTTL: w.plan.MaxTTL, Skew: w.plan.Skew})
		if err != nil {
			return err
		}
		b = q
	default:
		b = members[0]
	}
	hooks, heard := w.listens(c)
	c.hooks = heard
	d, err := dlock.New(b, w.plan.Clients[i].options(&dlock.Options{TTL: w.plan.TTL, Hooks: hooks, Logger: w.logger(c)}))
	if c.Client = d; err != nil {
		return err
	}
	w.wears(d)
	c.byName = w.plan.Clients[i].locksByName(d)
	w.introduce(c)
	return nil
}

// members are the backends of a client, one for each server.
func (w *world) members(c *client) (all []backend.Backend) {
	if w.shelves != nil {
		return w.shelves.members(w, c.index)
	}
	w.faraway(c)
	for place := range w.plan.Servers {
		b := redis.New(w.clientFor(c, place), w.settings(c.index))
		if w.plan.announces(c.index) {
			goByAnnouncements(b)
		}
		if w.plan.Clients[c.index].Asks {
			onlyAsk(b)
		}
		all = append(all, b)
	}
	return all
}

// faraway has the servers be as far away from a client as the plan says.
func (w *world) faraway(c *client) {
	for _, s := range w.nodes {
		way := w.net.way(c.index, s.index)
		way.base, way.jitter = w.plan.Latency, w.plan.Jitter
		if s.index == w.plan.Servers-1 {
			way.base += w.plan.Far
		}
		w.places(way)
	}
}

// settings are those of the backend of a client.
func (w *world) settings(client int) *redis.Options {
	o := &redis.Options{PollOnly: w.plan.Clients[client].Poll, Poll: w.plan.Interval, Keep: w.plan.keepOf(client)}
	if w.plan.Acks && !w.plan.Clients[client].Careless {
		o.Replicas = 1
	}
	return o
}

// listens are the hooks of a client, and who hears them.
func (w *world) listens(c *client) (dlock.Hooks, *listener) {
	i := c.index
	hooks, l := listen(w.plan.Clients[i].Hooks, w.plan.Seed+uint64(i), func(e dlock.RenewedEvent) { w.reg.renewed(i, e) })
	l.reg, l.index, l.prefix, l.closed = w.reg, i, w.plan.Clients[i].Prefix, c.closed
	m := w.plan.Clients[i].Manners
	l.w, l.hangs, l.asks, l.exits = w, m.Hangs, slices.Clone(m.Calls), m.Exits
	return hooks, l
}

// client returns the client library's for one place.
func (w *world) client(i, place int) goredis.UniversalClient {
	switch {
	case w.plan.Sentinels:
		return w.failoverClient(i)
	case w.plan.Cluster:
		return w.clusterClient(i)
	}
	o := w.options(i, place)
	switch {
	case w.plan.Clients[i].Asks:
		o.OnConnect = announceNothing()
	case w.plan.announces(i):
		o.OnConnect = announce()
	}
	w.guards(o, i, place)
	g := goredis.NewClient(o)
	w.hooked(g, i, place)
	return g
}

// bufferSize is enough for most that is sent at once: a large buffer costs more than what
// goes through it.
const bufferSize = 4 << 10

// user is as whom clients log in, and with what password.
const user = "u"

// options are those of the client that redis.Open makes.
func (w *world) options(i, place int) *goredis.Options {
	return w.asMade(i, &goredis.Options{
		OnConnect: w.greets(i, place), StreamingCredentialsProvider: w.streamFor(i),
		Addr: "10.0.0.1:6379", ClientName: w.label(i), Username: user, Password: user, CredentialsProviderContext: w.provider(),
		Dialer:     func(ctx context.Context, _, _ string) (net.Conn, error) { return w.net.dial(ctx, i, w.named(i, place)) },
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ReadTimeout:              answerOfOpened,
		ConnMaxIdleTime:          maxIdle,
		ReadBufferSize:           bufferSize, WriteBufferSize: bufferSize,
	})
}

// grace is how long parties have to end what they have begun.
const grace = 90 * time.Second

// live has faults happen while the parties are busy, and stops the parties.
func (w *world) live() {
	go w.suffer()
	time.Sleep(w.plan.Length)
	w.stop()
}

// act runs the parties until they have ended, which they have to.
func (w *world) act(ended <-chan struct{}) {
	done := make(chan struct{})
	var parties group
	for i, party := range w.plan.Clients {
		c := w.clients[i]
		if party.After > 0 {
			parties.run(func() { c.process.Run(func() { w.succeed(c, party) }) })
			continue
		}
		for _, ops := range party.Workers {
			if party.Fleeting != "" {
				parties.run(func() { c.process.Run(func() { w.fleet(c, party.Fleeting, ops) }) })
				continue
			}
			parties.run(func() { c.process.Run(func() { w.work(c, ops) }) })
		}
		if party.Close > 0 {
			parties.run(func() {
				c.process.Run(func() {
					time.Sleep(party.Close)
					if party.ClosedIn != "" {
						c.hooks.closeIn(party.ClosedIn, func() { w.closeClient(c, "dead") })
						return
					}
					w.closeClient(c, "dead")
				})
			})
		}
	}
	go func() {
		defer close(done)
		parties.wait()
		w.reg.rests()
	}()
	<-ended
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		w.reg.mu.Lock()
		w.reg.violate("every call ends", "parties are busy %v after the end: %s", grace, stacks("simulation.(*world)"))
		w.reg.mu.Unlock()
	}
}

// closeClient closes a client.
func (w *world) closeClient(c *client, unlock string) {
	select {
	case <-c.closed:
		w.closesAgain(c)
		return
	default:
		close(c.closed)
	}
	how := w.closing(c)
	var leases []*dlock.Lease
	if how != nil && how.Leased {
		leases = w.awaitLeases(c)
	}
	r := w.reg
	r.mu.Lock()
	r.closing[c.index] = true
	k := r.closes(c.index)
	r.note(c.index, "close?")
	r.mu.Unlock()
	bound := min(max(longestTTL(w.plan.TTL), time.Second), 5*time.Second) + k.keeps
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), closingKey{}, true))
	defer cancel()
	switch {
	case how != nil:
		ctx, cancel, bound = how.context(ctx, leases, bound)
		defer cancel()
		if how.Again > 0 {
			time.AfterFunc(how.Again, func() { w.closesAgain(c) })
		}
	case unlock == "dead":
		cancel()
		bound = time.Second
	}
	k.had = bound
	bound += w.leavesBehind(c.index)
	close(c.closes)
	w.closesFirst(c)
	began := time.Now()
	err := w.callsClose(ctx, c, how)
	if anyEnded(leases) { // the context may have been over before
		bound, k.had = max(bound, time.Second), min(k.had, time.Second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(c.index, "close: %v", err)
	r.closed(c.index, err)
	r.closings[c.index], k.ended = k, time.Now()
	r.judgesClose(c.index, k, err)
	if took := time.Since(began); took > bound+100*time.Millisecond && !r.dead[c.index] && !r.stuttered(began) && !r.stood(c.index, began) {
		r.violate("every call ends", "c%d close took %v, more than %v", c.index, took, bound)
	}
	if err != nil && !errors.Is(err, dlock.ErrUnavailable) && !(errors.Is(err, dlock.ErrAuth) && r.touched(c.index, began, denies)) &&
		!(errors.Is(err, dlock.ErrConflict) && r.isAnyStrange(w.names(), began.Add(-lingers))) {
		r.violate("errors are true", "c%d close: %v", c.index, err)
	}
}

func longestTTL(ttl time.Duration) time.Duration { return 2 * ttl }

// close ends the world, and sees to it that nothing is left of it.
func (w *world) close() {
	for _, c := range w.clients {
		w.closeClient(c, "live")
	}
	close(w.freed)
	time.Sleep(lingers)
	w.left()
	w.leftOnShelves()
	w.keysEnd()
	w.addUp()
	w.logsAdd()
	w.saysDropped()
	w.namesLeft()
	for _, c := range w.clients {
		w.leaves(c)
	}
	w.net.shut()
	for _, s := range w.nodes {
		s.close()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if s := stacks(""); s != "" {
		w.reg.mu.Lock()
		w.reg.violate("no goroutine is left", "%s", s)
		w.reg.mu.Unlock()
	}
}

// addUp checks that hooks have heard the end of all that they have heard the beginning of.
func (w *world) addUp() {
	for _, c := range w.clients {
		c.hooks.agrees()
		if calls, leases := c.hooks.counts(); calls != 0 || leases != 0 {
			w.reg.mu.Lock()
			w.reg.violate("hooks add up", "c%d: %d calls and %d leases have not ended", c.index, calls, leases)
			w.reg.mu.Unlock()
		}
	}
}

// left checks that no server has anything of a lock that nobody can have any more.
func (w *world) left() {
	r := w.reg
	if len(w.masters()) == 0 || len(r.touches) > 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range w.names() {
		for _, s := range w.keepers(name) {
			t := r.lock(name).last[s.index].asOf(s.clock().UnixMilli())
			rests := t.holder != "" && t.holder[len(t.holder)-1] == '!'
			for id := range t.readers {
				rests = rests || id[len(id)-1] == '!'
			}
			if (t.held() || len(t.queue) > 0) && !rests {
				r.violate("nothing is left behind", "%s after the end, on s%d: %+v", name, s.index, t)
			}
		}
	}
}

// stacks are those of the goroutines of this bubble but for the calling one, as far as
// they contain what.
func stacks(what string) string {
	buf := make([]byte, 1<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	var others []string
	for _, g := range all[1:] {
		head, _, _ := strings.Cut(g, "\n")
		if strings.Contains(head, "synctest bubble") && strings.Contains(g, what) && !strings.Contains(g, "testing/synctest.testingSynctestTest") && !strings.Contains(g, "internal/synctest.Run") {
			others = append(others, g)
		}
	}
	return strings.Join(others, "\n\n")
}
