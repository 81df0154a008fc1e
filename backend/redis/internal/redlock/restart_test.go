package redlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/quorum"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

func admin(t testing.TB, s *server.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// persistence are the ways in which Redis keeps data, and whether a server that was
// killed comes back with all that it has acknowledged, for sure.
var persistence = []struct {
	name    string
	args    []string
	keeps   bool // data, of whatever age
	durable bool
}{
	{"none", []string{"--save", ""}, false, false},
	{"snapshot", []string{"--save", "3600 1 300 100 60 10000"}, true, false},
	{"log", []string{"--appendonly", "yes", "--appendfsync", "no"}, true, false},
	{"log every second", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, true, false},
	{"log always", []string{"--appendonly", "yes", "--appendfsync", "always"}, true, true},
	{"log always, but not while it is rewritten", []string{"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"}, true, false},
	{"log always, and snapshot", []string{"--appendonly", "yes", "--appendfsync", "always", "--save", "3600 1"}, true, true},
}

// behindProxies returns a proxy for each server, and the addresses of the proxies.
func behindProxies(t *testing.T, masters []*server.Server) (proxies []*faultnet.Proxy, hosts []string) {
	for _, m := range masters {
		proxy, err := faultnet.Listen(m.Addr())
		ok(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		proxies, hosts = append(proxies, proxy), append(hosts, proxy.Addr())
	}
	return proxies, hosts
}

// A holder has lost all connections. One of its nodes restarts with what it keeps on
// disk, which may be from before it granted the lock. Nobody else gets the lock while
// the holder believes in it.
func TestRestartWithOldData(t *testing.T) {
	for _, p := range persistence {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			masters := startMasters(t, 3, p.args...)
			vouchFor(t, masters...)
			proxies, hosts := behindProxies(t, masters)
			const settings = "?dlock.ttl=5s&dlock.maxttl=5s&dlock.skew=50ms" // long enough for a busy machine to restart a server
			holder := openURL(t, "redlock://"+strings.Join(hosts, ",")+settings, nil)
			cycle(t, holder, "warm")
			other := openURL(t, "redlock://"+addresses(masters)+settings, nil)
			cycle(t, other, "warm") // it knows the server as it was
			for _, m := range masters {
				if p.keeps {
					ok(t, admin(t, m).Save(t.Context()).Err())
				}
			}
			proxies[2].Blackhole(faultnet.BothWays)
			proxies[2].Reset()
			name := "x" // for which the node that refuses is not asked first: it would be enough
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
			defer func() {
				for _, proxy := range proxies {
					proxy.Restore(faultnet.BothWays)
				}
			}()
			for l.Err() == nil {
				next, err := other.Mutex(name).TryLock(t.Context())
				if err == nil && l.Err() == nil {
					t.Fatalf("two holders, with tokens %d and %d", l.Token(), next.Token())
				}
			}
		})
	}
}

// A node whose data is certain to be whole votes again at once, any other when the
// rejoin delay has passed.
func TestRestartedNodeVotesAgain(t *testing.T) {
	for _, p := range persistence {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			masters := startMasters(t, 3, p.args...)
			vouchFor(t, masters...)
			c := openURL(t, "redlock://"+addresses(masters)+"?dlock.ttl=5s&dlock.maxttl=20s", nil)
			cycle(t, c, "x")
			for _, m := range masters[:2] {
				if p.keeps {
					ok(t, admin(t, m).Save(t.Context()).Err())
				}
				ok(t, m.Kill())
				ok(t, m.Restart(true))
			}
			for began := time.Now(); ; {
				l, err := c.Mutex("x").TryLock(t.Context())
				switch {
				case err == nil && !p.durable:
					t.Fatal("the nodes vote at once")
				case err == nil:
					ok(t, l.Unlock(t.Context()))
					return
				case strings.Contains(err.Error(), "takes part in") && !p.durable:
					return
				case time.Since(began) > wait:
					t.Fatal(err)
				}
			}
		})
	}
}

// A node was durable, and its settings are others when it has restarted. They may have been so before: what
// it has loaded does not say what it has forgotten.
func TestNodeThatRestartsWithOtherSettings(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3, "--appendonly", "yes", "--appendfsync", "everysec")
	vouchFor(t, masters...)
	for _, m := range masters[:2] { // as a connection before the restart has noted it
		ok(t, admin(t, m).HSet(t.Context(), "dlock:boot", "since", 1, "run", strings.Repeat("0", 40), "durable", 1).Err())
	}
	c := openURL(t, "redlock://"+addresses(masters)+"?dlock.ttl=5s&dlock.maxttl=20s", nil)
	_, err := c.Mutex("x").TryLock(t.Context())
	is(t, err, dlock.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "takes part in") {
		t.Error(err)
	}
}

// Whoever meets such a node first may not ask for its settings: that is no reason to believe what it has loaded.
func TestOtherSettingsMetByAUserWhoMayNotAsk(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3, "--appendonly", "yes", "--appendfsync", "everysec")
	vouchFor(t, masters...)
	for i, m := range masters {
		a := admin(t, m)
		ok(t, a.Do(t.Context(), "acl", "setuser", "app", "on", ">pw", "~*", "&*", "+@all", "-config").Err())
		if i < 2 {
			ok(t, a.HSet(t.Context(), "dlock:boot", "since", 1, "run", strings.Repeat("0", 40), "durable", 1).Err())
		}
	}
	for _, user := range []string{"app:pw@", ""} {
		c := openURL(t, "redlock://"+user+addresses(masters)+"?dlock.ttl=5s&dlock.maxttl=20s", nil)
		_, err := c.Mutex("x").TryLock(t.Context())
		is(t, err, dlock.ErrUnavailable)
	}
}

// startAgedMasters starts three servers, and waits until they have been up for longer than
// what they could have granted before, with a maximal TTL of 500 ms.
func startAgedMasters(t *testing.T) []*server.Server {
	masters := startMasters(t, 3)
	for _, m := range masters {
		for uptime(t, m) < 3 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return masters
}

// Servers that were there long before the first client need no more time. One whose
// data was deleted does.
func TestServersThatHaveBeenUp(t *testing.T) {
	t.Parallel()
	masters := startAgedMasters(t)
	url := "redlock://" + addresses(masters) + "?dlock.ttl=500ms&dlock.maxttl=500ms&dlock.skew=50ms"
	c := openURL(t, url, nil)
	l, err := c.Mutex("x").TryLock(t.Context())
	ok(t, err)
	ok(t, l.Unlock(t.Context()))
	for _, m := range masters[:2] {
		ok(t, admin(t, m).FlushAll(t.Context()).Err())
	}
	_, err = openURL(t, url, nil).Mutex("x").TryLock(t.Context())
	is(t, err, dlock.ErrUnavailable)
}

// Who only asks writes nothing, also on servers that nobody has used: they vote at once when
// the first lock is taken. Doctor tries a lock, and does not change that either.
func TestQuestionsToNewServers(t *testing.T) {
	for _, examines := range []bool{false, true} {
		t.Run(fmt.Sprintf("examines=%v", examines), func(t *testing.T) {
			t.Parallel()
			masters := startAgedMasters(t)
			url := "redlock://" + addresses(masters) + "?dlock.ttl=500ms&dlock.maxttl=500ms&dlock.skew=50ms"
			c := openURL(t, url, &dlock.Options{InspectOnly: true})
			if examines {
				ok(t, c.Examine(t.Context(), func(f dlock.Finding) {
					if f.Subject == "nodes" {
						t.Errorf("doctor says: %s", f.Text)
					}
				}))
			} else {
				ask(t, c)
				for i, m := range masters {
					if n := changes(t, m); n != 0 {
						t.Errorf("questions have written %d times to server %d", n, i+1)
					}
				}
				if strings.HasPrefix(masters[0].Version(), "6.") {
					return // without EVAL_RO it cannot tell who asks from who takes locks
				}
			}
			l, err := openURL(t, url, nil).Mutex("x").TryLock(t.Context())
			ok(t, err)
			ok(t, l.Unlock(t.Context()))
		})
	}
}

// ask asks c all that may be asked.
func ask(t *testing.T, c *dlock.Client) {
	t.Helper()
	ok(t, c.Ping(t.Context()))
	_, err := c.Inspect(t.Context(), "x")
	ok(t, err)
	for _, err := range c.Names(t.Context(), "") {
		ok(t, err)
	}
}

// changes is how often something was written to a server.
func changes(t testing.TB, s *server.Server) int {
	n, err := strconv.Atoi(admin(t, s).InfoMap(context.Background(), "persistence").Item("Persistence", "rdb_changes_since_last_save"))
	ok(t, err)
	return n
}

// uptime is for how many seconds a server has been up.
func uptime(t testing.TB, s *server.Server) int {
	n, err := strconv.Atoi(admin(t, s).InfoMap(context.Background(), "server").Item("Server", "uptime_in_seconds"))
	ok(t, err)
	return n
}

// The node at which a waiter queues restarts with a snapshot in which the waiter stands
// and the lease of the holder has run out since. The holder, which renews, does not
// reach another node. The waiter is not let in.
func TestRestartWithAnOldQueue(t *testing.T) {
	const lease = 5 * time.Second // long enough for a busy machine to restart a server
	byURL := func(t *testing.T, hosts string) *dlock.Client {
		return openURL(t, fmt.Sprintf("redlock://%s?dlock.ttl=%v&dlock.maxttl=60s&dlock.skew=50ms", hosts, lease), nil)
	}
	onClients := func(t *testing.T, hosts string) *dlock.Client {
		return clientOf(t, strings.Split(hosts, ","), &quorum.Options{MaxTTL: time.Minute, Skew: 50 * time.Millisecond}, lease)
	}
	t.Run("URL", func(t *testing.T) { t.Parallel(); restartWithAnOldQueue(t, byURL) })
	t.Run("OwnClients", func(t *testing.T) { t.Parallel(); restartWithAnOldQueue(t, onClients) })
}

func restartWithAnOldQueue(t *testing.T, open func(t *testing.T, hosts string) *dlock.Client) {
	masters := startMasters(t, 3, "--save", "3600 1")
	vouchFor(t, masters...)
	proxies, hosts := behindProxies(t, masters)
	holder := open(t, strings.Join(hosts, ","))
	cycle(t, holder, "warm")
	other := open(t, addresses(masters))
	cycle(t, other, "warm")

	front := 0
	const lock = "x"
	proxies[2].Blackhole(faultnet.BothWays)
	proxies[2].Reset()
	l, err := holder.Mutex(lock).Lock(t.Context())
	ok(t, err)
	got := make(chan *dlock.Lease, 1)
	go func() {
		next, _ := other.Mutex(lock).Lock(t.Context())
		got <- next
	}()
	queued := func() bool {
		for i, m := range masters[:2] {
			if n, _ := admin(t, m).ZCard(t.Context(), "dlock:{"+lock+"}:q").Result(); n > 0 {
				front = i
				return true
			}
		}
		return false
	}
	for !queued() {
		time.Sleep(10 * time.Millisecond)
	}
	ok(t, admin(t, masters[front]).Save(t.Context()).Err())
	expiry, err := admin(t, masters[front]).HGet(t.Context(), "dlock:{"+lock+"}", "e").Int64()
	ok(t, err)
	for time.Now().UnixMilli() <= expiry { // until what the snapshot says of the holder is over
		time.Sleep(10 * time.Millisecond)
	}
	ok(t, l.Err())
	for _, p := range proxies { // the holder believes in the lock, and cannot have its part prolonged
		p.Blackhole(faultnet.BothWays)
	}
	ok(t, masters[front].Kill())
	ok(t, masters[front].Restart(true))
	select {
	case next := <-got:
		if next != nil && l.Err() == nil {
			t.Errorf("two holders, with tokens %d and %d", l.Token(), next.Token())
		}
	case <-time.After(5 * time.Second): // of waiters that ask by themselves
	}
}
