package simulation

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9/auth"
)

// A program may have its own client be told of new credentials as they come (StreamingCredentialsProvider): the
// client library repeats the login on connections that live, each when nobody uses it.

func init() {
	// The credentials of a client are new, of the same user, with the password that there is.
	maps.Copy(furtherKinds, map[string]touch{"refresh": {}})
	kinds["refresh"] = furtherKinds["refresh"]
	keepsConnections = append(keepsConnections, "refresh")
}

// streams draws clients that are told of their credentials, in a part of the plans and of those whose password
// changes, and when these are new. The client library's client of Sentinels has nobody who listens, and makes no
// connection with a provider of this sort; nor does a connection that a program takes for itself (Client.Conn). Where
// few connections may be open at all, it says that there is none long after a login.
func (g *generator) streams() {
	g.draw = &draw{rand.New(rand.NewPCG(g.plan.Seed, 222))}
	p := g.plan
	if p.Backend == "memory" || p.Shelves || p.Sentinels || len(p.Durable) > 0 || p.Fresh || !g.often(4) && !(p.Rotates && g.often(30)) {
		return
	}
	for i := range p.Clients {
		c := &p.Clients[i]
		crowded := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == "pool" && f.Client == i })
		limited := c.Own != nil && c.Own.Limits != nil && c.Own.Limits.Active > 0
		if c.Opens != nil || c.Asks || crowded || limited || p.isShared(i) || !g.often(70) {
			continue
		}
		made := c.ownCopy()
		made.Streams = true
		c.Own = &made
		if len(p.Faults) == 0 && !g.often(50) {
			continue
		}
		for range 1 + g.IntN(6) {
			p.Faults = append(p.Faults, Fault{Kind: "refresh", At: g.within(0, p.Length), Client: i})
		}
	}
}

// A stream tells a client of its credentials. It is guarded by its mutex, but that nobody is told with it held.
type stream struct {
	w         *world
	mu        sync.Mutex
	listeners map[auth.CredentialsListener]bool
}

// streamFor is what a client is told by, nil if it is not.
func (w *world) streamFor(client int) auth.StreamingCredentialsProvider {
	if own := w.plan.Clients[client].Own; own == nil || !own.Streams {
		return nil
	}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	s := w.streaming[client]
	if s == nil {
		s = &stream{w: w, listeners: make(map[auth.CredentialsListener]bool)}
		w.streaming[client] = s
	}
	return s
}

// Subscribe implements auth.StreamingCredentialsProvider.
func (s *stream) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = true
	return s.newest(), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
		return nil
	}, nil
}

// newest are the credentials that are told now.
func (s *stream) newest() auth.Credentials {
	if !s.w.plan.Rotates {
		return auth.NewBasicCredentials(user, user)
	}
	s.w.net.mu.Lock()
	defer s.w.net.mu.Unlock()
	return auth.NewBasicCredentials(user, secretOf(s.w.vault.told))
}

// tells tells all who listen of new credentials.
func (s *stream) tells() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	for _, l := range all {
		l.OnNext(s.newest())
	}
}

// tellsCredentials has a client be told of new ones, or with less than 0 all that are told of any.
func (w *world) tellsCredentials(client int) {
	w.net.mu.Lock()
	var all []*stream
	for i, s := range w.streaming {
		if client < 0 || i == client {
			all = append(all, s)
		}
	}
	w.net.mu.Unlock()
	for _, s := range all {
		s.tells()
	}
}

// logsIn notes a login on a connection that has been used.
func (s *server) logsIn() {
	if s.world == nil {
		return
	}
	r := s.world.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coverage[anew]++
}

// anew is what counts logins that are repeated.
const anew = "a login repeated"
