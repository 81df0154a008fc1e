package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// TestSilentMemberIsLeftOut has one of three addresses fall silent: requests go to the
// others alone, until it answers again. The addresses are of one server, which makes no
// difference to the client.
func TestSilentMemberIsLeftOut(t *testing.T) {
	t.Parallel()
	addr := server.Start(t, server.Etcd{}).Addr()
	var proxies []*faultnet.Proxy
	var hosts []string
	for range 3 {
		p, err := faultnet.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		proxies, hosts = append(proxies, p), append(hosts, p.Addr())
	}
	u, err := backend.ParseURL("etcd://" + strings.Join(hosts, ",") + "/left-out")
	if err != nil {
		t.Fatal(err)
	}
	opened, err := open(t.Context(), backend.Config{URL: u, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b := opened.(*Backend)
	defer b.Close(context.Background())
	get := func() error {
		ctx, cancel := b.request(t.Context())
		defer cancel()
		_, err := b.client.Get(ctx, "any")
		return err
	}
	used := func(n int) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); len(b.client.Endpoints()) != n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the client uses %q, not %d addresses", b.client.Endpoints(), n)
			}
			_ = get()
		}
	}
	proxies[1].Blackhole(faultnet.BothWays)
	used(2)
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second) // the silent member's connection is given up after 13
		if _, err := b.client.Get(ctx, "any"); err != nil {
			t.Errorf("a request beside a silent member: %v", err)
		}
		cancel()
	}
	proxies[1].Restore(faultnet.BothWays)
	used(3)
}
