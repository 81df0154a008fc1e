package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/renewal"
)

// TestBrokenBesideAPartThatHasRunOut has the holder be cut off from one of three servers for longer than
// a lease, and whoever breaks its hold from another one, who cannot know that it is over. The holder hears
// of that with its next renewal at the latest.
func TestBrokenBesideAPartThatHasRunOut(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	through := func(i int) (*faultnet.Proxy, string) {
		p, err := faultnet.Listen(masters[i].Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p, p.Addr()
	}
	toThird, third := through(2)
	toSecond, second := through(1)
	a := openURL(t, "redlock://"+masters[0].Addr()+","+masters[1].Addr()+","+third, &dlock.Options{TTL: ttl})
	b := openURL(t, "redlock://"+masters[0].Addr()+","+second+","+masters[2].Addr(), &dlock.Options{TTL: ttl})
	cycle(t, a, "x")
	cycle(t, b, "x")
	l, err := a.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	toThird.Blackhole(faultnet.BothWays)
	time.Sleep(2 * ttl)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	toSecond.Blackhole(faultnet.BothWays)
	if err := b.Break(t.Context(), "x", l.Token()); !errors.Is(err, dlock.ErrUnavailable) {
		t.Fatal("one has ended its part, and one that may have it does not answer:", err)
	}
	next, err := b.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	if err := l.Err(); errors.Is(err, renewal.ErrNoAnswer) {
		t.Errorf("it has run out, and another has had the lock under token %d: %v", next.Token(), err)
	}
}
