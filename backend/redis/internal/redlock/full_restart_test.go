package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// A holder has lost all connections. One of its nodes restarts with a snapshot of before it
// granted the lock, and is full as others connect: it cannot note that it has restarted. Then
// there is room again. Nobody else gets the lock while the holder believes in it.
func TestRestartOfAFullNode(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3, "--save", "3600 1", "--maxmemory-policy", "noeviction")
	vouchFor(t, masters...)
	proxies, hosts := behindProxies(t, masters)
	const settings = "?dlock.ttl=20s&dlock.maxttl=60s&dlock.skew=50ms"
	holder := openURL(t, "redlock://"+strings.Join(hosts, ",")+settings, nil)
	cycle(t, holder, "warm")
	for _, m := range masters {
		ok(t, admin(t, m).Save(t.Context()).Err())
	}
	proxies[2].Blackhole(faultnet.BothWays)
	proxies[2].Reset()
	name := "x"
	for frontOf(name, len(masters)) == 0 {
		name += "x"
	}
	l, err := holder.Mutex(name).Lock(t.Context())
	ok(t, err)
	for _, proxy := range proxies {
		proxy.Blackhole(faultnet.BothWays)
	}
	ok(t, masters[1].Kill())
	ok(t, masters[1].Restart(true))
	at := admin(t, masters[1])
	ok(t, at.ConfigSet(t.Context(), "maxmemory", "100kb").Err())
	if err := at.Set(t.Context(), "filler", "", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatal(err)
	}
	other := openURL(t, "redlock://"+addresses(masters)+settings, nil) // it connects to the full node
	for range 5 {
		if next, err := other.Mutex(name).TryLock(t.Context()); err == nil {
			t.Fatalf("two holders, with tokens %d and %d", l.Token(), next.Token())
		}
		time.Sleep(50 * time.Millisecond)
	}
	ok(t, at.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for n := 0; n < 50 && l.Err() == nil; n++ {
		next, err := other.Mutex(name).TryLock(t.Context())
		if err == nil && l.Err() == nil {
			t.Fatalf("two holders, with tokens %d and %d", l.Token(), next.Token())
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, proxy := range proxies {
		proxy.Restore(faultnet.BothWays)
	}
}
