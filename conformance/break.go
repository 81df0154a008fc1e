package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A belief is the time in which a client believed in a lease, in one mode.
type belief struct {
	client   int
	mode     backend.Mode
	asked    time.Time
	from, to time.Time
	token    uint64
	lost     bool
}

// A breaking is one call of Break. It may have broken the hold if its end is unknown.
type breaking struct {
	token      uint64
	began, end time.Time
	err        error
}

func (b breaking) mayHaveBroken(token uint64) bool {
	return b.token == token && !errors.Is(b.err, backend.ErrNotHeld)
}

// A brokenLock is a lock that clients use in every way, and that others break meanwhile.
type brokenLock struct {
	*scenario
	breaker backend.Breaker

	mu        sync.Mutex
	tokens    []uint64 // granted so far
	beliefs   []belief
	breakings []breaking
}

// breakInUse breaks a lock, with tokens that are right, old, or nobody's, while clients
// take it, share it, enter it again, renew it, downgrade it and give it back. Only a hold
// that was to be broken is lost, and its holder believes in it until its next renewal at
// most; whoever waits has the lock long before the lease would be over; tokens grow.
func breakInUse(s *scenario) {
	b := s.breaker()
	if b == nil {
		return
	}
	const clients, breakers = 4, 2
	l := &brokenLock{scenario: s, breaker: b}
	peers := s.opens(clients)
	until := time.Now().Add(3 * s.TTL)
	each(clients+breakers, func(n int) {
		for time.Now().Before(until) && !s.Failed() {
			if n < clients {
				l.use(n, peers[n].RWMutex(s.name))
			} else {
				l.breakSome()
			}
		}
	})
	l.checkBeliefs()
	l.checkBreakings()
	l.checkTokens()
}

// use takes the lock once, in one of the ways that there are.
func (l *brokenLock) use(client int, m *dlock.RWMutex) {
	readers, downgrades := !l.lacks(Readers), !l.lacks(Downgrade)
	mode, lock := backend.Exclusive, m.Lock
	if readers && rand.IntN(3) == 0 {
		mode, lock = backend.Shared, m.RLock
	}
	b := belief{client: client, mode: mode, asked: time.Now()}
	lease, err := lock(l.ctx)
	switch {
	case errors.Is(err, dlock.ErrBroken): // before Lock had returned
		return
	case err != nil:
		l.Errorf("lock: %v", err)
		return
	}
	b.from, b.token = time.Now(), lease.Token()
	ended := make(chan time.Time, 1)
	go func() {
		<-lease.Done()
		ended <- time.Now()
	}()
	l.granted(b.token)
	l.hold()
	if rand.IntN(2) == 0 {
		again, err := lock(lease.Context(l.ctx))
		l.expect("re-entry", err)
		l.hold()
		if err == nil {
			l.expect("unlock of the re-entry", again.Unlock(l.ctx))
		}
	}
	if mode == backend.Exclusive && downgrades && rand.IntN(3) == 0 {
		exclusive := b
		exclusive.to = time.Now()
		err := lease.Downgrade(l.ctx)
		l.expect("downgrade", err)
		exclusive.lost = err != nil
		l.believed(exclusive, ended)
		if err != nil { // it has never been shared
			l.expect("unlock", lease.Unlock(l.ctx))
			return
		}
		b.mode, b.from = backend.Shared, time.Now()
		l.hold()
	}
	b.to = time.Now()
	err = lease.Unlock(l.ctx)
	l.expect("unlock", err)
	b.lost = err != nil
	l.believed(b, ended)
}

func (s *scenario) lacks(f Feature) bool {
	_, lacks := s.Lacks[f]
	return lacks
}

// hold passes time with a lease: now and then so much that it is renewed.
func (l *brokenLock) hold() {
	d := rand.N(l.TTL / 20)
	if rand.IntN(4) == 0 {
		d = rand.N(l.TTL / 2)
	}
	time.Sleep(d)
}

// expect reports what is neither success nor the loss of the lease.
func (l *brokenLock) expect(what string, err error) {
	if err != nil && !errors.Is(err, dlock.ErrLost) {
		l.Errorf("%s: %v", what, err)
	}
}

func (l *brokenLock) granted(token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = append(l.tokens, token)
}

// believed notes b, which has ended before b.to if the lease has.
func (l *brokenLock) believed(b belief, ended chan time.Time) {
	select {
	case at := <-ended:
		if at.Before(b.to) {
			b.to = at
		}
		ended <- at
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beliefs = append(l.beliefs, b)
}

// breakSome breaks the newest hold, one that is over, or one that there never was.
func (l *brokenLock) breakSome() {
	time.Sleep(rand.N(l.TTL / 8))
	l.mu.Lock()
	token := uint64(1)
	if n := len(l.tokens); n > 0 {
		token = l.tokens[n-1]
		switch rand.IntN(4) {
		case 0:
			token = l.tokens[rand.IntN(n)]
		case 1:
			token += 1 << 40
		}
	}
	l.mu.Unlock()
	b := breaking{token: token, began: time.Now()}
	b.err = l.breaker.Break(l.ctx, l.name, token)
	b.end = time.Now()
	if b.err != nil && !errors.Is(b.err, backend.ErrNotHeld) {
		l.Errorf("break: %v", b.err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breakings = append(l.breakings, b)
}

// checkBeliefs looks for two who believe at the same time in what cannot be: after Break
// that may be so until the next renewal, which is due after a third of the TTL.
func (l *brokenLock) checkBeliefs() {
	for _, a := range l.beliefs {
		broken := func(by breaking) bool { return by.mayHaveBroken(a.token) }
		if !slices.ContainsFunc(l.breakings, broken) {
			l.must(!a.lost, "token %d was lost and nobody has broken it, but just before %v", a.token, l.brokenBefore(a.to))
		}
		for _, b := range l.beliefs { // the one of the two that was granted later
			from, to := later(a.from, b.from), earlier(a.to, b.to)
			if a.client == b.client || a.mode == backend.Shared && b.mode == backend.Shared || a.token > b.token || !to.After(from) {
				continue
			}
			l.must(slices.ContainsFunc(l.breakings, func(by breaking) bool { return broken(by) && by.began.Before(b.from) }),
				"tokens %d and %d were held at the same time, and nobody has broken the first", a.token, b.token)
			overlap := to.Sub(from) - stallTime.stalled(from)
			l.must(overlap < l.TTL, "token %d was believed in for %v while %d was held", a.token, overlap, b.token)
		}
	}
}

// brokenBefore returns the tokens that were broken in the TTL before t.
func (l *brokenLock) brokenBefore(t time.Time) (tokens []uint64) {
	for _, by := range l.breakings {
		if by.err == nil && by.began.Before(t) && by.end.After(t.Add(-l.TTL)) {
			tokens = append(tokens, by.token)
		}
	}
	return tokens
}

// historyOf lists who has had the hold of a token, and who has broken it, by when it began.
func (l *brokenLock) historyOf(token uint64) string {
	type entry struct {
		at   time.Time
		text string
	}
	var all []entry
	for _, b := range l.beliefs {
		if b.token == token {
			all = append(all, entry{b.asked, fmt.Sprintf("client %d asked, %v, granted after %v, ended after %v, lost %v", b.client, b.mode, b.from.Sub(b.asked), b.to.Sub(b.asked), b.lost)})
		}
	}
	for _, by := range l.breakings {
		if by.token == token {
			all = append(all, entry{by.began, fmt.Sprintf("Break took %v: %v", by.end.Sub(by.began), by.err)})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, e := range all {
		fmt.Fprintf(&text, "\n%v %s", e.at.Sub(all[0].at), e.text)
	}
	return text.String()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// checkBreakings looks for what was broken and went on, and for those who had to wait
// although the hold before them was broken.
func (l *brokenLock) checkBreakings() {
	count := 0
	for _, by := range l.breakings {
		if by.err != nil {
			continue
		}
		count++
		free := by.end     // when those are gone whose hold was not broken
		waits := false     // somebody does
		var next time.Time // when anybody had the lock: who asks at the same time may come first
		for _, b := range l.beliefs {
			if b.token != by.token {
				if b.from.Before(by.end) {
					free = later(free, b.to)
				}
			} else {
				l.must(b.to.Sub(by.end)-stallTime.stalled(by.end) < l.TTL, "token %d was believed in for %v after Break", b.token, b.to.Sub(by.end))
				l.must(!b.asked.After(by.end), "token %d was granted after it had been broken: %s", b.token, l.historyOf(b.token))
			}
			if b.from.After(by.began) {
				waits = waits || b.asked.Before(by.began)
				if next.IsZero() || b.from.Before(next) {
					next = b.from
				}
			}
		}
		l.must(!waits || next.Sub(free)-stallTime.stalled(free) < l.TTL/2, "the next in line got the lock %v after Break", next.Sub(free))
	}
	l.must(count > 0, "nothing was broken in %d tries", len(l.breakings))
	l.Logf("%d beliefs, %d breakings, %d of a hold", len(l.beliefs), len(l.breakings), count)
}

// checkTokens looks for a token that is not greater than one before it. Readers share one,
// also with a writer that has become a reader.
func (l *brokenLock) checkTokens() {
	for _, a := range l.beliefs {
		for _, b := range l.beliefs {
			if a.from.Before(b.asked) {
				grows := a.token < b.token || a.token == b.token && b.mode == backend.Shared
				l.must(grows, "token %d came after %d", b.token, a.token)
			}
		}
	}
}
