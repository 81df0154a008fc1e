package simulation

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// sentinels are how many there are, where clients ask them for the master.
const sentinels = 3

const masterName = "master"

// A sentinel says which server is the master. The client library asks with a mutex held,
// so that its answers take no time; see dial. It may be late to know, and it may be away.
type sentinel struct {
	index int

	mu    sync.Mutex
	word  *server   // the master, as far as it knows
	away  time.Time // it accepts nobody until then
	says  error     // what it says as it knows no master, which is
	until time.Time // so until then
	peers map[*peer]bool
}

// address is where a server is found.
func (s *sentinel) address() string { return fmt.Sprintf("10.0.1.%d:26379", s.index+1) }

// serve answers a connection until its end.
func (s *sentinel) serve(c net.Conn) {
	p := &peer{conn: c, w: bufio.NewWriter(c), channels: make(map[string]bool)}
	go p.answer(s)
}

func (s *sentinel) forget(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
}

func (s *sentinel) execute(p *peer, cmd string, args []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch cmd {
	case "HELLO":
		p.resp3 = len(args) > 0 && args[0] == "3"
		p.reply(fields{"server", "redis", "version", "7.4.0", "proto", int64(3), "mode", "sentinel", "role", "sentinel", "modules", []any{}}, nil)
	case "CLIENT":
		p.reply(status("OK"), nil)
	case "PING":
		p.reply(status("PONG"), nil)
	case "SUBSCRIBE":
		s.peers[p] = true
		for i, topic := range args {
			p.push("subscribe", topic, int64(i+1))
		}
	case "SENTINEL":
		if strings.EqualFold(args[0], "sentinels") {
			p.reply([]any{}, nil)
			return
		}
		if time.Now().Before(s.until) {
			p.reply(nil, s.says)
			return
		}
		host, port, _ := net.SplitHostPort(s.word.address())
		p.reply([]any{host, port}, nil)
	default:
		p.reply(nil, replyError("ERR unknown command '"+cmd+"'"))
	}
}

// hears has a sentinel know a new master, and tell.
func (s *sentinel) hears(master *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.word == master {
		return
	}
	from, fromPort, _ := net.SplitHostPort(s.word.address())
	to, toPort, _ := net.SplitHostPort(master.address())
	s.word = master
	for p := range s.peers {
		p.push("message", "+switch-master", strings.Join([]string{masterName, from, fromPort, to, toPort}, " "))
	}
}

func (s *sentinel) accepts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !time.Now().Before(s.away)
}

// leave has a sentinel be away for a time.
func (s *sentinel) leave(end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = end
}

// appoint has the sentinels hear of a new master, one after the other.
func (w *world) appoint(master *server) {
	for i, s := range w.sentinels {
		time.AfterFunc(w.plan.Word*time.Duration(i+1)/sentinels, func() {
			if w.master(0) == master { // else there has been another since
				s.hears(master)
			}
		})
	}
}

// dialSentinel connects a client with a sentinel.
func (n *network) dialSentinel(client int, s *sentinel) (net.Conn, error) {
	way := n.way(client, -1-s.index)
	if !s.accepts() || way.isRefused() {
		return nil, errRefused
	}
	way.change(func() { way.base = 0 })
	way.tidy() // in a plan of hours there are thousands
	l := way.connect(true, s.address())
	outside(func() { s.serve(l.server) })
	return l.client, nil
}

// failoverClient returns a client of the master that the sentinels name.
func (w *world) failoverClient(i int) *goredis.Client {
	o := w.options(i, 0)
	f := &goredis.FailoverOptions{
		MasterName: masterName, ClientName: o.ClientName, Username: user, Password: user, CredentialsProviderContext: w.provider(),
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled, DisableIdentity: o.DisableIdentity,
		Protocol: o.Protocol, PoolSize: o.PoolSize,
		ReadTimeout: o.ReadTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime,
		ConnMaxLifetime: o.ConnMaxLifetime, MinIdleConns: o.MinIdleConns, PoolTimeout: o.PoolTimeout,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		Dialer: w.dialer(i),
	}
	for _, s := range w.sentinels {
		f.SentinelAddrs = append(f.SentinelAddrs, s.address())
	}
	f.MaxActiveConns, f.PipelinePoolSize, f.PoolFIFO = o.MaxActiveConns, o.PipelinePoolSize, o.PoolFIFO
	g := goredis.NewFailoverClient(f)
	w.hooked(g, i, 0)
	return g
}

// dial connects a client with whoever has an address.
func (w *world) dial(ctx context.Context, client int, addr string) (net.Conn, error) {
	for _, s := range w.sentinels {
		if s.address() == addr {
			return w.net.dialSentinel(client, s)
		}
	}
	for _, s := range w.nodes {
		if s.address() == addr {
			return w.net.dial(ctx, client, s)
		}
	}
	return w.dialNobody(ctx, addr)
}
