package redis

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// TestInspectReadersThatRenewTogether has more readers than a page renew their leases at one
// moment between two pages, as those of one client do. Who has not been told of yet is not
// passed over with them.
func TestInspectReadersThatRenewTogether(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(time.Hour).UnixMilli()
	const together, others = page + 50, 200
	reader := func(n int, expiry int64) redis.Z {
		return redis.Z{Score: float64(expiry), Member: fmt.Sprintf("r60000:client:%d.AAAAAAAAAAA", n+1)}
	}
	for name, of := range map[string]struct {
		apart int64 // ms between the ends of two of those leases
		at    int   // the page before which they renew
		until int64 // ms, by which those leases then last longer; those of others last 1,000,000 longer
	}{
		"of one end":                         {0, 3, 2_000_000},
		"of one end, shorter than of others": {0, 2, 500_000},
		"shorter than of others":             {1, 2, 500_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c := within(t), plainClient(t, shared)
			b, proxy := behindProxy(t)
			key := mainKey(t.Name()) + ":r"
			add := func(from, to int, expiry, each int64) {
				var all []redis.Z
				for n := from; n < to; n++ {
					all = append(all, reader(n, expiry+each*int64(n)))
				}
				must[int64](t)(c.ZAdd(ctx, key, all...).Result())
			}
			add(0, together, now, of.apart)
			add(together, together+others, now+1_000_000, 1)
			must[bool](t)(c.Expire(ctx, key, time.Minute).Result())
			pages := 0
			proxy.OnRequest(func(_ int, req []byte) {
				if bytes.Contains(req, []byte(mainKey(t.Name()))) {
					if pages++; pages == of.at {
						add(0, together, now+of.until, of.apart)
					}
				}
			})
			s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name()))
			if n := len(s.Holders); n != together+others || pages < of.at {
				t.Errorf("%d readers of %d, on %d pages", n, together+others, pages)
			}
		})
	}
}

// TestInspectReadersThatRenewAllTheTime has as many readers as a page renew before each: who
// has a longer lease is told of all the same.
func TestInspectReadersThatRenewAllTheTime(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	b, proxy := behindProxy(t)
	key := mainKey(t.Name()) + ":r"
	add := func(many int, ttl time.Duration, later int) {
		var all []redis.Z
		for n := range many {
			expiry := time.Now().Add(ttl/2).UnixMilli() + int64(later*page+n)
			all = append(all, redis.Z{Score: float64(expiry), Member: fmt.Sprintf("r%d:client:%d.AAAAAAAAAAA", millis(ttl), n+1)})
		}
		must[int64](t)(c.ZAdd(ctx, key, all...).Result())
	}
	const others = page + 100
	add(page, time.Minute, 0)
	add(others, time.Hour, 0)
	must[bool](t)(c.Expire(ctx, key, time.Minute).Result())
	pages := 0
	proxy.OnRequest(func(_ int, req []byte) {
		if bytes.Contains(req, []byte(mainKey(t.Name()))) {
			if pages++; pages > 1 {
				add(page, time.Minute, pages)
			}
		}
	})
	s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name()))
	if n := len(s.Holders); n != page+others {
		t.Errorf("%d readers of %d, on %d pages", n, page+others, pages)
	}
}
