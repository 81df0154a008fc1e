package redlock

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/quorum"
	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// wait bounds every wait for a server.
const wait = 2 * time.Minute

func TestMain(m *testing.M) {
	// The client library tells stderr of every broken connection.
	logging.Disable()
	if err := flag.Set("test.parallel", "8"); err != nil { // tests wait more than they work
		panic(err)
	}
	os.Exit(m.Run())
}

// startMasters runs n servers that know nothing of one another.
func startMasters(t testing.TB, n int, args ...string) []*server.Server {
	return server.StartAll(t, server.Copies(n, server.Redis{Args: args})...)
}

func addresses(servers []*server.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return strings.Join(all, ",")
}

// vouch has a server vote at once: the test knows that it has forgotten nothing.
func vouch(t testing.TB, login *redis.Options) {
	c := redis.NewClient(login)
	defer c.Close()
	if err := c.HSet(context.Background(), "dlock:boot", "since", 1, "run", "-").Err(); err != nil {
		t.Fatal(err)
	}
}

func vouchFor(t testing.TB, servers ...*server.Server) {
	for _, s := range servers {
		vouch(t, &redis.Options{Addr: s.Addr(), DisableIdentity: true})
	}
}

func openURL(t testing.TB, url string, o *dlock.Options) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func cycle(t testing.TB, c *dlock.Client, name string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	l, err := c.Mutex(name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	return l.Token()
}

func TestURL(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3, "--requirepass", "s:e/c@r,et")
	for _, s := range masters {
		vouch(t, &redis.Options{Addr: s.Addr(), Password: "s:e/c@r,et", DB: 1, DisableIdentity: true})
	}
	url := "redlock://:s%3Ae%2Fc%40r%2Cet@" + addresses(masters) + "/1?pool_size=5&dlock.maxttl=40s&dlock.ttl=5s"
	c := openURL(t, url, nil)
	if one, two := cycle(t, c, "x"), cycle(t, c, "x"); two <= one || one == 0 {
		t.Errorf("tokens %d and %d", one, two)
	}
	_, err := c.Mutex("x", dlock.WithTTL(41*time.Second)).TryLock(t.Context())
	is(t, err, dlock.ErrInvalidTTL)

	c = openURL(t, "redlock://"+addresses(masters)+"/1?dlock.need=all", &dlock.Options{
		Credentials: func(context.Context) (string, string, error) { return "", "s:e/c@r,et", nil },
	})
	cycle(t, c, "y")
	_, err = dlock.Open(t.Context(), "redlock://:wrong@"+addresses(masters), nil)
	is(t, err, dlock.ErrAuth)
}

// TestTLS reaches each node through a tunnel that ends the encryption, and only
// if its certificate is trusted.
func TestTLS(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	certified := server.NewCertified()
	var hosts []string
	for _, s := range masters {
		hosts = append(hosts, certified.Tunnel(t, s.Addr()))
	}
	url := "redlocks://" + strings.Join(hosts, ",")
	cycle(t, openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: certified.Roots}}), "x")
	_, err := dlock.Open(t.Context(), url, &dlock.Options{TLS: &tls.Config{}})
	is(t, err, dlock.ErrUnavailable)
}

func TestURLRefuses(t *testing.T) {
	for url, kind := range map[string]error{
		"redlock://":                                       dlock.ErrInvalidConfig,
		"redlock://a":                                      dlock.ErrInvalidConfig,
		"redlock://a,b":                                    dlock.ErrInvalidConfig,
		"redlock://a,b,c,d":                                dlock.ErrInvalidConfig,
		"redlock://a,b,a":                                  dlock.ErrInvalidConfig,
		"redlock://[::1],b,[::1]:6379":                     dlock.ErrInvalidConfig,
		"redlock://a?dlock.need=all":                       dlock.ErrInvalidConfig,
		"redlock://a,b,c?dlock.need=two":                   dlock.ErrInvalidConfig,
		"redlock://a,b,c?dlock.maxttl=1ms":                 dlock.ErrInvalidConfig,
		"redlock://a,b,c?dlock.maxttl=25h":                 dlock.ErrInvalidConfig,
		"redlock://a,b,c?dlock.ttl=3m":                     dlock.ErrInvalidTTL,
		"redlock://a,b,c?dlock.maxttl=8s":                  dlock.ErrInvalidTTL,
		"redlock://[::1]:1,b?dlock.need=all&dlock.ttl=3m":  dlock.ErrUnavailable,
		"redlock://a,b,c?dlock.skew=-1s":                   dlock.ErrInvalidConfig,
		"redlock://a,b,c?dlock.skew=soon":                  dlock.ErrInvalidConfig,
		"redlock://a,b,c?nosuch=1":                         dlock.ErrInvalidConfig,
		"redlock://a,b,c/db":                               dlock.ErrInvalidConfig,
		"redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3":    dlock.ErrUnavailable,
		"redlocks://[::1]:1,[::1]:2,[::1]:3":               dlock.ErrUnavailable,
		"redlock://127.0.0.1:1,127.0.0.1:2?dlock.need=all": dlock.ErrUnavailable,
	} {
		_, err := dlock.Open(t.Context(), url, nil)
		if !errors.Is(err, kind) {
			t.Errorf("%s: error is %v, want %v", url, err, kind)
		}
	}
}

// A node that is down when the quorum is opened joins it when it comes up.
func TestOpenWithOneDown(t *testing.T) {
	t.Parallel()
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	if err := masters[0].Kill(); err != nil {
		t.Fatal(err)
	}
	c := openURL(t, "redlock://"+addresses(masters), nil)
	last := cycle(t, c, "x")
	if err := masters[0].Restart(false); err != nil {
		t.Fatal(err)
	}
	vouchFor(t, masters[0])
	for begin := time.Now(); scripts(t, masters[0]) == 0; { // until it is asked
		last = max(last, cycle(t, c, "x"))
		if time.Since(begin) > wait {
			t.Fatal("the node was never asked")
		}
	}
	if err := masters[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if token := cycle(t, c, "x"); token <= last {
		t.Errorf("token %d came after %d", token, last)
	}
	if err := masters[1].Restart(true); err != nil { // it has a right to hear that nothing is held
		t.Fatal(err)
	}
}

// A node that is silent, from when the quorum is opened or later, holds up neither that
// nor its end.
func TestSilentNodeHoldsNothingUp(t *testing.T) {
	masters := startMasters(t, 3)
	vouchFor(t, masters...)
	proxies, hosts := behindProxies(t, masters)
	url := "redlock://" + strings.Join(hosts, ",")
	for _, from := range []string{"opening", "later"} {
		if from == "opening" {
			proxies[0].Blackhole(faultnet.BothWays)
		}
		began := time.Now()
		c, err := dlock.Open(t.Context(), url, nil)
		ok(t, err)
		cycle(t, c, "x")
		proxies[0].Blackhole(faultnet.BothWays)
		cycle(t, c, "x")
		ok(t, c.Close(t.Context()))
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("silent from %s on: it took %v", from, took)
		}
		proxies[0].Restore(faultnet.BothWays)
	}
}

// scripts is how many scripts a server has run.
func scripts(t testing.TB, s *server.Server) int {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DisableIdentity: true})
	defer c.Close()
	stats := c.Info(context.Background(), "commandstats").Val()
	return strings.Count(stats, "cmdstat_eval")
}

// Masters restart without their data, one at a time, while clients work. The
// rejoin delay is that of short leases, so that there are many restarts.
func TestTokensUnderRedisRestarts(t *testing.T) {
	t.Parallel()
	const holds = 400
	masters := startMasters(t, 5)
	vouchFor(t, masters...)
	url := "redlock://" + addresses(masters) + "?dlock.ttl=500ms&dlock.maxttl=500ms&dlock.skew=50ms"
	var clients [4]*dlock.Client
	for i := range clients {
		clients[i] = openURL(t, url, nil)
	}
	var mu sync.Mutex
	var last, visits uint64
	var done atomic.Bool
	var restarts sync.WaitGroup
	n := 0
	restarts.Go(func() {
		for ; !done.Load(); n++ {
			s := masters[rand.N(len(masters))]
			if err := errors.Join(s.Kill(), s.Restart(false)); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(700*time.Millisecond + rand.N(300*time.Millisecond)) // it votes again
		}
	})
	var work sync.WaitGroup
	for _, c := range clients {
		work.Go(func() {
			for {
				l, err := c.Mutex("x").Lock(context.Background())
				if errors.Is(err, dlock.ErrUnavailable) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if l.Token() <= last {
					t.Errorf("token %d came after %d", l.Token(), last)
				}
				last = l.Token()
				visits++
				enough := visits >= holds
				mu.Unlock()
				time.Sleep(rand.N(20 * time.Millisecond))
				_ = l.Unlock(context.Background())
				if enough {
					return
				}
			}
		})
	}
	work.Wait()
	done.Store(true)
	restarts.Wait()
	t.Log(fmt.Sprint(n, " restarts"))
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error is %v, want %v", err, kind)
	}
}
