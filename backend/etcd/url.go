package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("etcd", open)
	backend.Register("etcds", open)
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	stop := listeners.add(cfg.Logger)
	b, err := connect(ctx, cfg, stop)
	if err != nil {
		stop()
		return nil, err
	}
	return b, nil
}

// connect makes the first session at once. That proves that the cluster has a leader and
// that the user may write below the prefix, and saves the first lock the time.
func connect(ctx context.Context, cfg backend.Config, stopLog func()) (*Backend, error) {
	settings, login, err := clientConfig(cfg)
	if err != nil {
		return nil, err
	}
	failure := new(lastFailure)
	settings.DialOptions = append(settings.DialOptions, grpc.WithChainUnaryInterceptor(failure.unary, checkAnswer)) // after that of the login
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, fail(err)
	}
	b := New(client, &Options{Prefix: cfg.URL.Path})
	b.owned, b.stopLog, b.ttl, b.login, b.failure = true, stopLog, cfg.TTL, login, failure
	if err := b.begin(ctx, cfg); err != nil {
		if ctx.Err() == nil {
			err = unavailable(err)
		}
		err = b.at(b.withReason(ctx, err)) // while a member is asked, the request ends that says why
		_ = b.Close(ctx)
		return nil, err
	}
	b.logWarnings(cfg.Logger)
	return b, nil
}

// begin finds out whether the server answers. It makes the session that locks need: who
// only asks reads instead, and changes nothing.
func (b *Backend) begin(ctx context.Context, cfg backend.Config) error {
	if cfg.InspectOnly {
		return repeat(ctx, backend.FirstAnswer, func(ctx context.Context) error {
			_, err := b.client.Get(ctx, b.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
			return fail(err)
		})
	}
	s, err := b.session(ctx, cfg.TTL)
	if err == nil {
		s.unreserve()
	}
	return err
}

// clientConfig returns no login if no user is given.
func clientConfig(cfg backend.Config) (clientv3.Config, *login, error) {
	u := cfg.URL
	if len(u.Hosts) == 0 {
		return clientv3.Config{}, nil, backend.Fail(backend.ErrInvalidConfig, errors.New("URL: want a host"))
	}
	security, err := cfg.TakeTLS(u.Scheme == "etcds")
	if err := errors.Join(err, u.Params.Done()); err != nil {
		return clientv3.Config{}, nil, err
	}
	c := clientv3.Config{
		Endpoints: u.HostPorts("2379"),
		TLS:       security,
		Logger:    zap.NewNop(),

		MaxCallRecvMsgSize: maxAnswer,

		// A member that has fallen silent is given up after these two.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(reconnect),
			grpc.WithStaticStreamWindowSize(window),
			grpc.WithStaticConnWindowSize(window),
		},
	}
	scheme := "http://"
	if security != nil {
		scheme = "https://"
	}
	for i, host := range c.Endpoints {
		c.Endpoints[i] = scheme + host
	}
	var l *login
	if credentials := cfg.Login(); credentials != nil {
		l = newLogin(credentials)
		c.DialOptions = append(c.DialOptions, l.options()...)
	}
	return c, l, nil
}

// reconnect pauses for less than gRPC's default, two minutes, which outlasts a lease.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 3 * time.Second,
}

// window is how many bytes of answers may be under way. Without it gRPC sends a ping
// with nearly every answer, to measure the connection.
const window = 1 << 20
