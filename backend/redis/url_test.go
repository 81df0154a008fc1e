package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/canary"
	"github.com/dlock-go/dlock/internal/server"
)

func TestBadTopologyURLs(t *testing.T) {
	const canary = "c4n4ry"
	for url, want := range map[string]string{
		"redis+cluster://":                                         "host,host",
		"redis+cluster://h/0":                                      "one database",
		"redis+cluster://h?addr=x":                                 `unknown parameter "addr"`,
		"redis+cluster://h?read_only=1":                            `unknown parameter "read_only"`,
		"redis+cluster://h?nonsense=1":                             "nonsense",
		"redis+cluster://h?pool_size=" + canary:                    "parameter pool_size",
		"redis://h?read_timeout=" + canary + "&pool_fifo=true":     "parameter read_timeout",
		"redis://h?protocol=" + canary:                             "parameter protocol",
		"unix:///tmp/x.sock?db=" + canary:                          "parameter db",
		"redis+sentinel://h/m?dial_timeout=" + canary:              "parameter dial_timeout",
		"redis://h/" + canary:                                      "database",
		"redis+cluster://h?pool_size=-5":                           "pool_size",
		"redis+sentinel://h/m?pool_size=99999999999":               "pool_size",
		"redis://h?pool_size=-5":                                   "pool_size",
		"redis://h/2?db=3":                                         "parameter db",
		"redis+sentinel://h":                                       "name-of-the-master",
		"redis+sentinel:///m":                                      "host,host",
		"redis+sentinel://h/m/x":                                   "database",
		"redis+sentinel://h/m/0/1":                                 "path",
		"redis+sentinel://h/m?replica_only=1":                      `unknown parameter "replica_only"`,
		"redis+sentinel://h/m?password=" + canary:                  `unknown parameter "password"`,
		"redis+sentinel://h/m?nonsense=1":                          "nonsense",
		"redis+sentinel://u:" + canary + "@h":                      "name-of-the-master",
		"redis+sentinel://h?sentinel_password=" + canary:           "name-of-the-master",
		"redis+sentinel://h/m?dlock.wake=" + canary:                "dlock.wake",
		"redis+cluster://h?dial_timeout=" + canary + "&nonsense=1": "parameter",
		"redis://h?dlock.poll=-1s&dlock.keep=1ms":                  "dlock.poll: want more than 0; parameter dlock.keep",
	} {
		_, err := dlock.Open(t.Context(), url, nil)
		if !errors.Is(err, dlock.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: a secret in %v", url, err)
		}
	}
}

// TestURLsOfAnotherTopology opens servers as what they are not.
func TestURLsOfAnotherTopology(t *testing.T) {
	t.Parallel()
	w, _ := startWatched(t, 1, silence)
	c, _ := sharedCluster.use(t)
	for url, want := range map[string]error{
		strings.TrimSuffix(sentinelURL(w), server.PrimaryName) + "nosuch": dlock.ErrInvalidConfig,
		"redis+sentinel://" + shared.Addr() + "/m":                        dlock.ErrUnavailable,
		"redis+cluster://" + shared.Addr():                                dlock.ErrInvalidConfig,
		"redis+cluster://" + w.Sentinels[0].Addr():                        dlock.ErrUnavailable,
		"redis://" + c.Masters[0].Addr():                                  dlock.ErrInvalidConfig,
		"redis://" + c.Replicas[0].Addr():                                 dlock.ErrInvalidConfig,
		"redis://" + shared.Addr() + "/99":                                dlock.ErrInvalidConfig,
	} {
		client, err := dlock.Open(within(t), url, nil)
		if err == nil {
			_ = client.Close(context.Background())
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// What a server says in place of a Sentinel goes to the logger of the client alone.
func TestLogOfAServerThatIsNoSentinel(t *testing.T) {
	const said = "ERR this is no Sentinel"
	log, logged := canary.Log()
	addr := answering(t, strings.Repeat("-"+said+"\r\n", 8)) // whatever the client asks
	_, err := dlock.Open(within(t), "redis+sentinel://"+addr+"/m", &dlock.Options{Logger: log})
	is(t, err, dlock.ErrUnavailable)
	if text := logged(); !strings.Contains(text, said) {
		t.Errorf("the logger has heard %q", text)
	}
	if strings.Contains(stray.String(), said) {
		t.Error("it went to stderr too")
	}
}

// FuzzURL makes clients of URLs: what is wrong has a kind, and does not show the password.
func FuzzURL(f *testing.F) {
	const canary = "c4n4ry-in-a-url"
	for _, u := range []string{
		"redis://u:p@h:1/2?read_timeout=3s", "unix:///tmp/x.sock?db=1", "rediss+sentinel://h,h2/master/1?sentinel_password=x",
		"redis+cluster://[::1]:7000,h?pool_size=3", "redis://h/x", "redis://h?pool_size=-1", "redis://h?dlock.keep=1", "valkeys://h?skip_verify=true",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := backend.ParseURL(text)
		if err != nil {
			return
		}
		u.User, u.Password = "user", backend.NewSecret(canary)
		if u.Scheme != "unix" && !strings.HasPrefix(u.Scheme, "redis") && !strings.HasPrefix(u.Scheme, "valkey") {
			return
		}
		cfg := backend.Config{URL: u}
		takeOptions(cfg)
		c, _, err := clientOf(cfg)
		if err == nil {
			_ = c.Close()
		}
		if err != nil && (!errors.Is(err, backend.ErrInvalidConfig) || strings.Contains(err.Error(), canary)) {
			t.Errorf("%v", err)
		}
	})
}

// TestTLS reaches the server through a tunnel that ends the encryption, and
// only if its certificate is trusted.
func TestTLS(t *testing.T) {
	t.Parallel()
	certified := server.NewCertified()
	addr := certified.Tunnel(t, shared.Addr())
	url := "rediss://" + addr + "?dial_timeout=9s" // a handshake takes its time on a busy machine
	a := openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: certified.Roots}})
	b := openURL(t, url, &dlock.Options{TLS: &tls.Config{RootCAs: certified.Roots}})
	lease := must[*dlock.Lease](t)(a.Mutex(t.Name()).Lock(within(t)))
	got := make(chan error, 1)
	go func() {
		next, err := b.Mutex(t.Name()).Lock(within(t))
		if err == nil {
			err = next.Unlock(within(t))
		}
		got <- err
	}()
	<-lease.Wanted()
	must[any](t)(nil, lease.Unlock(within(t)))
	must[any](t)(nil, <-got)

	for url, c := range map[string]struct {
		o    *dlock.Options
		says error // nil: nothing of schemes
	}{
		url:                                  {o: &dlock.Options{TLS: &tls.Config{}}},
		"redis://" + addr:                    {says: errUnheard},
		"redis://" + alerting(t):             {says: errTLS},
		"rediss://" + shared.Addr():          {says: errNoTLS},
		"rediss+cluster://" + shared.Addr():  {says: errNoTLS},
		"rediss://" + answering(t, "-ERR x"): {says: errNoTLS},
	} {
		client, err := dlock.Open(within(t), url, c.o)
		if err == nil {
			_ = client.Close(context.Background())
		}
		if !errors.Is(err, dlock.ErrUnavailable) || c.says != nil && !errors.Is(err, c.says) || c.says == nil && strings.Contains(err.Error(), "redis://") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// alerting returns the address of a server that answers as OpenSSL does to what is no TLS.
func alerting(t *testing.T) string { return answering(t, "\x15\x03\x03\x00\x02\x02\x16") }

// answering returns the address of a server that says text to whoever has said something.
func answering(t *testing.T, text string) string {
	t.Helper()
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_, _ = conn.Write([]byte(text + "\r\n"))
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	return ln.Addr().String()
}
