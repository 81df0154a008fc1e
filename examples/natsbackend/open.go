package natsbackend

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("nats", open) }

// Options of New. The zero value is ready to use.
type Options struct {
	Bucket   string // dlock if empty
	Replicas int    // of a bucket that has to be made; 1 if zero
}

// forgetAfter is longer than the longest TTL.
const forgetAfter = backend.MaxTTL + time.Hour

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	u := cfg.URL
	o := &Options{Bucket: strings.Trim(u.Path, "/"), Replicas: u.Params.TakeInt("replicas", 1)}
	if err := u.Params.Done(); err != nil {
		return nil, err
	}
	if strings.Trim(o.Bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || o.Replicas < 1 || o.Replicas > 5 {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("want nats://host/bucket?replicas=1 to 5"))
	}
	if len(u.Hosts) == 0 {
		u.Hosts = []string{"localhost"}
	}
	nc, err := connect(cfg)
	if err != nil {
		return nil, backend.At(u.HostPorts("4222"), failure(err))
	}
	b, err := New(ctx, nc, o)
	if err != nil {
		nc.Close()
		return nil, err
	}
	b.owned = true
	return b, nil
}

func connect(cfg backend.Config) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name(cfg.Label),
		nats.Timeout(backend.FirstAnswer),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectBufSize(-1), // a request that cannot be sent fails at once
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cfg.Logger.Debug("nats", "cause", err) }),
	}
	user, password := cfg.URL.User, cfg.URL.Password.Reveal()
	switch {
	case cfg.Credentials != nil:
		options = append(options, nats.UserInfoHandler(func() (user, password string) {
			ctx, cancel := context.WithTimeout(context.Background(), backend.FirstAnswer)
			defer cancel()
			user, password, err := cfg.Credentials(ctx)
			if err != nil {
				cfg.Logger.Warn("nats: no credentials", "cause", err)
			}
			return user, password
		}))
	case user != "" || password != "":
		options = append(options, nats.UserInfo(user, password))
	}
	if cfg.TLS != nil {
		options = append(options, nats.Secure(cfg.TLS))
	}
	return nats.Connect("nats://"+strings.Join(cfg.URL.HostPorts("4222"), ",nats://"), options...)
}

// bucket finds or makes the bucket. Reads of it go to its leader: a follower may
// say of a lock what was true a moment ago.
func bucket(ctx context.Context, nc *nats.Conn, o *Options) (jetstream.KeyValue, error) {
	if o == nil {
		o = new(Options)
	}
	name := cmp.Or(o.Bucket, "dlock")
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, failure(err)
	}
	if _, err = js.KeyValue(ctx, name); errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, TTL: forgetAfter, Replicas: max(o.Replicas, 1)})
	}
	if err == nil || errors.Is(err, jetstream.ErrBucketExists) {
		err = readFromLeader(ctx, js, "KV_"+name)
	}
	if err != nil {
		return nil, failure(err)
	}
	kv, err := js.KeyValue(ctx, name)
	return kv, failure(err)
}

func readFromLeader(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil || !s.CachedInfo().Config.AllowDirect {
		return err
	}
	config := s.CachedInfo().Config
	config.AllowDirect = false
	_, err = js.UpdateStream(ctx, config)
	return err
}
