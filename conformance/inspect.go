package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// inspector returns a client's backend as an Inspector. It is nil, and the property
// not applicable, if the backend is none.
func (s *scenario) inspector() backend.Inspector {
	s.Helper()
	i, ok := s.open().Backend.(backend.Inspector)
	if ok {
		_, err := i.Inspect(s.ctx, s.sub("unused"))
		ok = !errors.Is(err, backend.ErrUnsupported)
	}
	if s.na(!ok, "the backend is no Inspector") {
		return nil
	}
	return i
}

// breaker returns a client's backend as a Breaker. It is nil, and the property not
// applicable, if the backend is none, or cannot take a hold away.
func (s *scenario) breaker() backend.Breaker {
	s.Helper()
	b, ok := s.open().Backend.(backend.Breaker)
	if s.na(!ok, "the backend is no Breaker") {
		return nil
	}
	lease := s.locked(s.open().Mutex(s.sub("first")))
	err := b.Break(s.ctx, s.sub("first"), lease.Token())
	if s.na(errors.Is(err, backend.ErrUnsupported), "the backend can take no hold away") {
		return nil
	}
	s.ok(err)
	if err := b.Break(s.ctx, s.sub("free"), 1); !errors.Is(err, backend.ErrNotHeld) {
		s.Fatalf("Break of a free lock returned %v", err)
	}
	return b
}

// inspect returns what the server says of the lock of that name.
func (s *scenario) inspect(i backend.Inspector, name string) backend.Snapshot {
	s.Helper()
	snapshot, err := i.Inspect(s.ctx, name)
	s.ok(err)
	return snapshot
}

// shows waits until the server says of name what cond asks for: a request may return
// before the last server knows of it.
func (s *scenario) shows(i backend.Inspector, name, what string, cond func(backend.Snapshot) bool) {
	s.Helper()
	var last backend.Snapshot
	for start := time.Now(); ; {
		if last = s.inspect(i, name); cond(last) {
			return
		}
		s.pass(time.Millisecond)
		if time.Since(start)-stallTime.stalled(start) > 5*s.TTL {
			s.Fatalf("Inspect does not show %s but %+v", what, last)
		}
	}
}

func isFree(n backend.Snapshot) bool { return len(n.Holders) == 0 && len(n.Waiters) == 0 }

// inspectHolder inspects a lock that is free, held, entered again and free again.
func inspectHolder(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	s.shows(i, s.name, "a free lock", isFree)
	const label = "hölder 1 \x1b[2J\t|\"'{}%s\r\n*\\"
	l := s.openWith(dlock.Options{Label: label}).Mutex(s.name)
	lease := s.locked(l)
	s.shows(i, s.name, "its holder", func(n backend.Snapshot) bool {
		return len(n.Holders) == 1 && len(n.Waiters) == 0
	})
	h := s.inspect(i, s.name).Holders[0]
	s.must(h.Mode == backend.Exclusive && (h.Label == label || s.NoLabels), "the holder is %+v", h)
	s.must(h.Entries == 1, "a holder has entered %d times", h.Entries)
	known := h.Token != 0 || slices.Contains(s.Optional, "Breaker") // whoever breaks a hold has to know its token
	s.must(!known || h.Token == lease.Token(), "token %d, the holder's is %d", h.Token, lease.Token())
	s.must(h.Left >= 0 && h.Left <= s.TTL+backend.Margin(s.TTL), "%v are left of %v", h.Left, s.TTL)
	s.alive(lease)
	again, err := l.Lock(lease.Context(s.ctx))
	s.ok(err)
	entries := 1
	if slices.Contains(s.Optional, "Reenterer") {
		entries = 2
	}
	s.shows(i, s.name, "one holder, entries and all", func(n backend.Snapshot) bool {
		return len(n.Holders) == 1 && n.Holders[0].Entries == entries
	})
	s.unlock(again)
	s.unlock(lease)
	s.shows(i, s.name, "a free lock again", isFree)
}

func labelsOf(parties []backend.Party) (labels []string) {
	for _, p := range parties {
		labels = append(labels, p.Label)
	}
	return labels
}

// inspectWaiters inspects a lock with three waiters: they are in the order in which
// they get it, unless clients keep the order, see Harness.OrderByClients.
func inspectWaiters(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	lease := s.locked(s.openWith(dlock.Options{Label: "first"}).Mutex(s.name))
	var waiting []*attempt
	labels := []string{"second", "third", "fourth"}
	for n, label := range labels {
		waiting = append(waiting, s.queue(s.openWith(dlock.Options{Label: label}).Mutex(s.name), s.name, n+1))
	}
	for len(waiting) > 0 {
		s.shows(i, s.name, fmt.Sprintf("the waiters %q in this order", labels), func(got backend.Snapshot) bool {
			shown := labelsOf(got.Waiters)
			if s.OrderByClients {
				slices.Sort(shown)
				return slices.Equal(shown, slices.Sorted(slices.Values(labels)))
			}
			return slices.Equal(shown, labels)
		})
		s.unlock(lease)
		n := -1
		s.eventually("the next has the lock", func() bool {
			n = slices.IndexFunc(waiting, func(a *attempt) bool { return !a.waiting() })
			return n >= 0
		})
		s.must(n == 0 || s.OrderByClients, "%s has got the lock before %s", labels[n], labels[0])
		lease = waiting[n].granted()
		s.shows(i, s.name, "the holder "+labels[n], func(got backend.Snapshot) bool {
			return slices.Equal(labelsOf(got.Holders), labels[n:n+1])
		})
		waiting, labels = slices.Delete(waiting, n, n+1), slices.Delete(labels, n, n+1)
	}
	s.unlock(lease)
	s.shows(i, s.name, "a free lock", isFree)
}

// inspectReaders inspects a lock with readers, one of which was a writer, and one who waits
// to be a reader.
func inspectReaders(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	s.needs(Readers)
	s.needs(Downgrade)
	open := func(label string) *Peer { return s.openWith(dlock.Options{Label: label}) }
	labels := func(parties []backend.Party) string {
		all := labelsOf(parties)
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	writer := s.locked(open("a").RWMutex(s.name))
	waits := s.queue(open("b").RWMutex(s.name).RLocker(), s.name, 1)
	s.shows(i, s.name, "b, who waits to read", func(n backend.Snapshot) bool { return labels(n.Waiters) == "b" })
	s.ok(writer.Downgrade(s.ctx))
	reader, third := waits.granted(), s.rlocked(open("c").RWMutex(s.name))
	s.shows(i, s.name, "three readers", func(n backend.Snapshot) bool { return labels(n.Holders) == "a b c" })
	s.unlock(third)
	s.shows(i, s.name, "two readers", func(n backend.Snapshot) bool {
		return labels(n.Holders) == "a b" && n.Holders[0].Mode == backend.Shared && n.Holders[1].Mode == backend.Shared
	})
	for _, h := range s.inspect(i, s.name).Holders {
		known := h.Token != 0 || slices.Contains(s.Optional, "Breaker")
		s.must(h.Entries == 1, "a reader has entered %d times", h.Entries)
		s.must(!known || h.Token == writer.Token() || h.Token == reader.Token(), "token %d, the readers have %d and %d", h.Token, writer.Token(), reader.Token())
	}
	s.unlock(writer)
	s.shows(i, s.name, "one reader", func(n backend.Snapshot) bool { return labels(n.Holders) == "b" })
	s.unlock(reader)
	s.shows(i, s.name, "a free lock", isFree)
}

// inspectLost inspects a lock whose holder has lost it, and one whose holder's process
// has died: it is not said to be held for longer than its lease.
func inspectLost(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	lease := s.locked(s.open().Mutex(s.name))
	s.Evict(s.TB, s.name)
	s.lost(lease)
	s.shows(i, s.name, "a free lock after the loss", isFree)
	if s.URL == "" {
		return
	}
	p := s.opened()
	p.do("lock", "h", s.name, "exclusive")
	s.shows(i, s.name, "the process that holds", func(n backend.Snapshot) bool { return len(n.Holders) == 1 })
	p.kill()
	s.shows(i, s.name, "a free lock after the crash", isFree)
}

// inspectLeavesNothing inspects names that nobody has used: the server has nothing
// of them afterwards, nor of who asked.
func inspectLeavesNothing(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	before := s.Residue(s.TB)
	for n := range 20 {
		s.must(isFree(s.inspect(i, s.sub(n))), "somebody has a name that nobody used")
	}
	for _, err := range i.Names(s.ctx, s.name) {
		if unlisted(err) {
			break
		}
		s.ok(err)
	}
	var after []string
	for start := time.Now(); time.Since(start)-stallTime.stalled(start) < s.TTL; s.pass(time.Millisecond) {
		if after = s.Residue(s.TB); len(after) <= len(before) {
			return // the server may notice later that a connection has ended
		}
	}
	s.Fatalf("Inspect left something: %v, before %v", after, before)
}

// inspectOnlyReads asks about a lock that is held, one whose holder renews it no more, and
// one that nobody has used: the server has nothing then that it had not before, and has
// lost nothing.
func inspectOnlyReads(s *scenario) {
	i := s.inspector()
	if i == nil || s.unable(s.State == nil, "State") {
		return
	}
	p := s.open()
	b := p.Backend
	acquire := func(name string, ttl time.Duration) *backend.Hold {
		h, err := b.Acquire(s.ctx, backend.Request{Name: name, ID: backend.ID{Client: identity(), Seq: 1}, Mode: backend.Exclusive, TTL: ttl, Observer: deaf{}})
		s.ok(err)
		return h
	}
	held, left := acquire(s.name, 20*s.TTL), acquire(s.sub("left"), s.TTL)
	s.pass(s.TTL + backend.Margin(s.TTL))
	ask := func() {
		for _, name := range []string{s.name, s.sub("left"), s.sub("unused")} {
			s.inspect(i, name)
		}
		for _, err := range i.Names(s.ctx, s.name) {
			if unlisted(err) {
				break
			}
			s.ok(err)
		}
		if pinger, ok := b.(backend.Pinger); ok {
			if _, err := pinger.Ping(s.ctx); !errors.Is(err, backend.ErrUnsupported) {
				s.ok(err)
			}
		}
	}
	ask() // connects
	var before, after string
	for start := time.Now(); time.Since(start)-stallTime.stalled(start) < 2*s.TTL; s.pass(time.Millisecond) {
		before = s.State(s.TB)
		ask()
		if after = s.State(s.TB); after == before {
			s.ok(b.Release(s.ctx, held))
			_ = b.Release(s.ctx, left) // may be over
			return
		}
	}
	s.Fatalf("to ask changes what the server has: %s, before %s", after, before)
}

// unlisted reports whether err says that there is no list of names, or none for this
// login.
func unlisted(err error) bool {
	return errors.Is(err, backend.ErrUnsupported) || errors.Is(err, backend.ErrAuth)
}

// inspectNames lists 1,000 names that are held and one that is waited for, among others.
func inspectNames(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	const held = 1000
	p := s.open()
	prefix := "names/" + identity()[:8] + "/"
	for got, err := range i.Names(s.ctx, prefix) {
		if s.na(unlisted(err), "the client has no list of names") {
			return
		}
		s.ok(err)
		s.Fatalf("%q is in the list, and nobody has used it", got)
	}
	listStrangeNames(s, i, p) // often: before there is much to look through
	var mu sync.Mutex
	var leases []*dlock.Lease
	name := func(n int) string { return fmt.Sprintf("%sü %d", prefix, n) }
	each(10, func(part int) {
		for n := part; n < held; n += 10 {
			lease, err := s.patiently(p.Mutex(name(n), dlock.WithTTL(20*s.TTL)))
			if err != nil {
				s.Errorf("lock: %v", err)
				return
			}
			mu.Lock()
			leases = append(leases, lease)
			mu.Unlock()
		}
	})
	other := s.locked(p.Mutex(s.name))
	found := make(map[string]bool)
	for got, err := range i.Names(s.ctx, prefix) {
		s.ok(err)
		s.must(strings.HasPrefix(got, prefix), "name %q does not begin with %q", got, prefix)
		found[got] = true
	}
	for n := range held {
		s.must(found[name(n)], "%q is held and is not in the list of %d", name(n), len(found))
	}
	s.must(len(found) == held, "%d names of %d", len(found), held)
	s.unlock(other)
	each(10, func(part int) {
		for n := part; n < len(leases); n += 10 {
			if err := leases[n].Unlock(s.ctx); err != nil {
				s.Errorf("unlock: %v", err)
			}
		}
	})
	for got, err := range i.Names(s.ctx, prefix) {
		s.ok(err)
		s.Fatalf("%q is free and is in the list", got)
	}
}

// listStrangeNames lists names by prefixes that would be patterns, paths or the ends of
// a range elsewhere.
func listStrangeNames(s *scenario, i backend.Inspector, p *Peer) {
	root := "strange/" + identity()[:8]
	names := []string{root + "/*", root + "/**a", root + "/a", root + "/[ab]", root + `/\*`, root + "/?", root + "/../b", root + "/a/b", root + "/ü%C3{x}\n", root + "/a b", root + "/.", root + "//", root + "0"}
	var leases []*dlock.Lease
	for _, name := range names {
		leases = append(leases, s.locked(p.Mutex(name)))
	}
	for _, prefix := range append([]string{root, root + "/", root + "/[", root + `/\`, root + "/ü%C", root + "/\xc3", root + "/..", root + "/[ab]x", root[:len(root)-1] + "?"}, names...) {
		var want []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		found := make(map[string]bool)
		for got, err := range i.Names(s.ctx, prefix) {
			s.ok(err)
			found[got] = true
		}
		slices.Sort(want)
		got := slices.Sorted(maps.Keys(found))
		s.must(slices.Equal(got, want), "names that begin with %q: %q, want %q", prefix, got, want)
	}
	for _, lease := range leases {
		s.unlock(lease)
	}
}

// inspectNoSecrets looks at all text in what Inspect returns: the label, and of the
// client no more than its ID, or a few characters of what the server calls it. The rest of
// what a hold is released with, such as the number of its request, is not among it.
func inspectNoSecrets(s *scenario) {
	i := s.inspector()
	if i == nil {
		return
	}
	b := s.open().Backend
	id, next := backend.ID{Client: identity(), Seq: 987654321}, backend.ID{Client: identity(), Seq: 987654322}
	const label, most = "whose it is", 10
	h, err := b.Acquire(s.ctx, backend.Request{Name: s.name, ID: id, Label: label, Mode: backend.Exclusive, TTL: s.TTL, Observer: deaf{}})
	s.ok(err)
	s.shows(i, s.name, "its holder", func(n backend.Snapshot) bool { return len(n.Holders) == 1 })
	waiting, cancel := context.WithCancel(s.ctx)
	defer cancel()
	waiter := make(chan struct{})
	other := s.open().Backend
	go func() {
		defer close(waiter)
		_, _ = other.Acquire(waiting, backend.Request{Name: s.name, ID: next, Label: label, Mode: backend.Exclusive, TTL: s.TTL, Wait: true, Observer: deaf{}})
	}()
	s.shows(i, s.name, "who waits", func(n backend.Snapshot) bool { return len(n.Waiters) == 1 })
	said := s.inspect(i, s.name)
	for _, p := range append(said.Holders, said.Waiters...) {
		rest := strings.NewReplacer(id.Client, "", next.Client, "").Replace(p.Client)
		s.must(len(rest) <= most && !strings.Contains(rest, "98765432"), "Inspect tells more of a client than who it is: %q", p.Client)
		s.must(p.Label == label || p.Label == "" && s.NoLabels, "the label is %q", p.Label)
	}
	cancel()
	<-waiter
	s.ok(b.Release(s.ctx, h))
}

// breakHolder takes a hold away from a client that renews it: its lease is lost at a
// renewal because of Break, and the next in the queue has the lock under a greater token.
func breakHolder(s *scenario) {
	b := s.breaker()
	if b == nil {
		return
	}
	lease := s.locked(s.open().Mutex(s.name))
	next := s.queue(s.open().Mutex(s.name), s.name, 1)
	s.ok(b.Break(s.ctx, s.name, lease.Token()))
	s.within(s.TTL/2, "the next has the lock, long before the lease of the one before is over,", next.ready)
	s.within(2*s.TTL, "the lease of a broken hold is lost", lease.Done()) // a server may grant leases that are longer
	s.is(lease.Err(), dlock.ErrLost, dlock.ErrBroken)
	second := next.granted()
	s.must(second.Token() > lease.Token(), "token %d came after %d", second.Token(), lease.Token())
	if err := b.Break(s.ctx, s.name, lease.Token()); !errors.Is(err, backend.ErrNotHeld) {
		s.Fatalf("a hold was broken with a token that is not its own: %v", err)
	}
	s.pass(s.TTL) // so long that a renewal would tell
	s.alive(second)
	s.unlock(second)
	s.freed(s.open().Mutex(s.name))
}

// A turn is one grant to a client, with when it was asked for and when it was there.
type turn struct {
	asked, got time.Time
	token      uint64
}

// inOrder fails unless tokens grow with the turns: a turn that was asked for when another
// was there has a greater one.
func (s *scenario) inOrder(turns []turn) {
	s.Helper()
	for _, a := range turns {
		for _, b := range turns {
			if a.got.Before(b.asked) && a.token >= b.token {
				s.Errorf("token %d came after %d", b.token, a.token)
			}
		}
	}
}

// breakRaces breaks holds while clients take and release the lock: a lease ends
// unlocked or lost, tokens grow from turn to turn, and everybody gets a turn.
func breakRaces(s *scenario) {
	b := s.breaker()
	if b == nil {
		return
	}
	const clients, turns = 3, 15
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	tokens := make(chan uint64, clients)
	var mu sync.Mutex
	var granted []turn
	var breaking sync.WaitGroup
	breaking.Go(func() {
		for {
			select {
			case token := <-tokens:
				if err := b.Break(ctx, s.name, token); err != nil && !errors.Is(err, backend.ErrNotHeld) && ctx.Err() == nil {
					s.Errorf("break: %v", err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	peers := s.opens(clients)
	each(clients, func(n int) {
		l := peers[n].Mutex(s.name)
		for range turns {
			asked := time.Now()
			lease, err := l.Lock(s.ctx)
			if err != nil {
				s.Errorf("lock: %v", err)
				return
			}
			mu.Lock()
			granted = append(granted, turn{asked, time.Now(), lease.Token()})
			mu.Unlock()
			select {
			case tokens <- lease.Token():
			default:
			}
			time.Sleep(time.Millisecond)
			if err := lease.Unlock(s.ctx); err != nil && !errors.Is(err, dlock.ErrLost) {
				s.Errorf("unlock: %v", err)
			}
		}
	})
	cancel()
	breaking.Wait()
	s.must(len(granted) == clients*turns, "%d turns of %d", len(granted), clients*turns)
	s.inOrder(granted)
	slices.SortFunc(granted, func(a, b turn) int { return cmp.Compare(a.token, b.token) })
	s.must(len(slices.CompactFunc(granted, func(a, b turn) bool { return a.token == b.token })) == clients*turns, "a token was granted twice")
}

// pingAnswers asks a server that answers, and one that does not.
func pingAnswers(s *scenario) {
	p := s.open()
	b, ok := p.Backend.(backend.Pinger)
	if s.na(!ok, "the backend is no Pinger") {
		return
	}
	version, err := b.Ping(s.ctx)
	if s.na(errors.Is(err, backend.ErrUnsupported), "the backend is no Pinger") {
		return
	}
	s.ok(err)
	s.Logf("version %q", version)
	if s.unable(p.Cut == nil, "Cut") {
		return
	}
	heal := p.Cut()
	defer heal()
	ctx, cancel := context.WithTimeout(s.ctx, s.TTL/2)
	defer cancel()
	_, err = b.Ping(ctx)
	s.must(err != nil, "a server that cannot be reached answered")
}
