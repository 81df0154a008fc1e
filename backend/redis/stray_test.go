package redis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// A watchedConn calls on before a release leaves.
type watchedConn struct {
	net.Conn
	on func()
}

func (w watchedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(releaseScript.sha.(string))) {
		w.on()
	}
	return w.Conn.Write(b)
}

type deaf struct{}

func (deaf) Lost(error) {}
func (deaf) Wanted()    {}

// TestGrantToldDuringRelease has the message of a grant come after the reply
// that told it, when the hold is being released: it is nobody's stray grant,
// whose release could overtake the one under way and make it fail.
func TestGrantToldDuringRelease(t *testing.T) {
	ctx := within(t)
	var told func()
	rdb := redis.NewClient(&redis.Options{
		Addr: shared.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return watchedConn{conn, func() { told() }}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	b := New(rdb, nil)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	h := must[*backend.Hold](t)(b.Acquire(ctx, backend.Request{
		Name: t.Name(), ID: backend.ID{Client: t.Name(), Seq: 1}, Mode: backend.Exclusive, TTL: limit, Observer: deaf{},
	}))
	strays, messages := 0, 0
	b.hub.stray = func(string, string) { strays++ }
	told = func() {
		messages++
		b.hub.dispatch(fmt.Sprintf("%s %d 1 2 0 %s", h.State.(*state).id, h.Token, mainKey(t.Name())))
	}
	must[any](t)(nil, b.Release(ctx, h))
	if strays != 0 || messages == 0 {
		t.Errorf("%d of %d messages are taken for stray grants", strays, messages)
	}
}
