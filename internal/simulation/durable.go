package simulation

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A member of a quorum that has every write on disk before its reply (appendfsync always) forgets nothing
// when it restarts, and votes at once. It may cease to be so: by CONFIG SET, which the next connection
// notices, or by other settings as it starts.

func init() {
	furtherKinds["cease"] = touch{}
	kinds["cease"] = touch{}
}

// durables has some or all members of a part of the quorums be durable, and restart more often. Each
// connection that a URL has made says whether they are.
func (g *generator) durables() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 80))}
	p := g.plan
	if p.Backend != "quorum" || p.Shelves || p.needsAll() || p.Fresh || len(p.Faults) == 0 || !g.often(20) {
		return
	}
	p.Announced = true
	for i := range p.Clients {
		p.Clients[i].Own, p.Clients[i].Opens = nil, nil
	}
	p.Durable = g.Perm(p.Servers)
	if g.often(40) {
		p.Durable = p.Durable[:1+g.IntN(p.Servers)]
	}
	if g.often(50) {
		p.Faults = nil
	}
	p.Faults = slices.DeleteFunc(p.Faults, func(f Fault) bool { // those that are durable keep what they have
		return f.Trigger != nil || slices.Contains(p.Durable, f.Server) && (f.Kind == "restart-old" || f.Kind == "restart-empty")
	})
	for range 1 + g.IntN(6) {
		g.ceases(Fault{Kind: "restart", At: g.within(0, p.Length), For: g.within(0, time.Second), Client: -1, Server: pick(g.draw, p.Durable...)})
	}
}

// ceases draws a restart of a durable member, before which it may have ceased to be one: it comes back
// with what it had some time after that. What a plan has so for a member it has once: later it is none.
func (g *generator) ceases(restart Fault) {
	p := g.plan
	ceased := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == "cease" && f.Server == restart.Server })
	if ceased || !g.often(25) {
		p.Faults = append(p.Faults, restart)
		return
	}
	cease := Fault{Kind: "cease", At: restart.At, Client: -1, Server: restart.Server, Way: g.IntN(2)}
	restart.Kind, restart.Size = "restart-old", pick(g.draw, g.within(0, 100*time.Millisecond), g.within(0, p.TTL))
	restart.At += time.Second + g.within(0, p.TTL)
	p.Faults = append(p.Faults, cease, restart)
}

// isDurable reports whether a server has every write on disk before its reply.
func (s *server) isDurable() bool {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return s.faults.durable
}

// settings answers CONFIG GET, as far as it is asked for what is kept on disk.
func (s *server) settings(args []string) fields {
	if s.world == nil || len(s.world.plan.Durable) == 0 || len(args) < 3 || args[2] != "*append*" {
		return fields{}
	}
	sync := "everysec"
	if s.isDurable() {
		sync = "always"
	}
	return fields{"appendonly", "yes", "appendfsync", sync, "no-appendfsync-on-rewrite", "no"}
}

// cease has a server be durable no longer. One whose settings are in a file as before is durable again
// when it has restarted: there a connection is made meanwhile, that notices.
func (w *world) cease(f Fault) {
	s := w.master(f.Server)
	s.set(func() { s.faults.durable = false })
	if f.Way == 0 {
		w.notices(f.Server)
		s.set(func() { s.faults.returns = true })
	}
}

// notices connects once to a server, as a client of a URL does.
func (w *world) notices(place int) {
	ctx, cancel := context.WithTimeout(w.over, time.Second)
	defer cancel()
	c := goredis.NewClient(&goredis.Options{
		Addr: "10.0.0.1:6379", Username: user, Password: user, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, OnConnect: announce(),
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.net.dial(ctx, operator, w.master(place))
		},
	})
	defer c.Close()
	for c.Ping(ctx).Err() != nil && sleep(ctx, 10*time.Millisecond) == nil {
	}
}

// resettles has a server that starts have the settings that are in its file.
func (s *server) resettles() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.durable = s.faults.durable || s.faults.returns
}

// unnoted are faults by which a member may not have the mark that says that it is durable: it could not
// write that down, or was flushed, and no connection has been made since.
var unnoted = []string{"restart-empty", "full", "readonly", "misconf", "noperm", "no-replicas"}

// keepsVoting reports whether a member of a quorum votes as soon as it has restarted: it had everything on
// disk, and a connection has marked it for that before.
func (r *register) keepsVoting(f Fault) bool {
	if f.Kind != "restart" || len(r.w.plan.Durable) == 0 || !r.w.master(f.Server).isDurable() || !r.w.master(f.Server).marked.Load() {
		return false
	}
	return !slices.ContainsFunc(r.touches, func(t touched) bool {
		return t.concerns(r.w.master(f.Server)) && slices.Contains(unnoted, t.kind)
	})
}
