package simulation

import (
	"context"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/quorum"
	"github.com/dlock-go/dlock/backend/redis"
)

// operator is the number of one who takes locks away at a moment, beside all clients: no time passes
// on its way to a server.
const operator = -10

// breaks has an operator take locks away from whoever has them.
func (w *world) breaks(names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), firstAnswer)
	defer cancel()
	c, end, err := w.operator()
	if err != nil {
		return
	}
	defer end()
	for _, name := range names {
		found, err := c.Inspect(ctx, name)
		if err != nil || len(found.Holders) == 0 {
			continue
		}
		w.reg.touch(Fault{Kind: "break", Client: -1, For: firstAnswer})
		asked := &call{client: operator, what: "break", names: []string{name}, ctx: ctx, start: time.Now()}
		token := found.Holders[0].Token
		w.reg.broken(asked, token, c.Break(ctx, name, token))
	}
}

// operator connects one.
func (w *world) operator() (c *dlock.Client, end func(), err error) {
	for _, s := range w.nodes {
		w.net.way(operator, s.index).base = 0
	}
	var all []goredis.UniversalClient
	var members []backend.Backend
	for place := range w.plan.Servers {
		g := w.operates(place)
		all = append(all, g)
		members = append(members, redis.New(g, &redis.Options{PollOnly: true, Keep: w.plan.Keep}))
	}
	b := members[0]
	if w.plan.Backend == "quorum" {
		if b, err = quorum.New(members, &quorum.Options{MaxTTL: w.plan.MaxTTL, Skew: w.plan.Skew}); err != nil {
			return nil, nil, err
		}
	}
	c, err = dlock.New(b, &dlock.Options{TTL: w.plan.TTL})
	end = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
		for _, g := range all {
			_ = g.Close()
		}
	}
	return c, end, err
}

func (w *world) operates(place int) goredis.UniversalClient {
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if w.plan.Cluster {
		o := &goredis.ClusterOptions{
			Username: user, Password: user, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			MaintNotificationsConfig: off, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
			Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return w.dial(ctx, operator, addr) },
		}
		for _, s := range w.foundingNodes() {
			o.Addrs = append(o.Addrs, s.address())
		}
		return goredis.NewClusterClient(o)
	}
	return goredis.NewClient(&goredis.Options{
		Addr: "10.0.0.1:6379", Username: user, Password: user, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: off, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.net.dial(ctx, operator, w.master(place))
		},
	})
}
