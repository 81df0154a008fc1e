package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock/backend"
)

const (
	openTimeout = 10 * time.Second // of Open on a server that does not answer
	readTimeout = 2 * time.Second  // of one reply, where the URL has no other
	maxPoolSize = 1 << 16

	// maxIdleTime is how long a connection may be idle, where the URL has no other, before another
	// takes its place. What is on the way, as load balancers of clouds, may forget one after 4
	// minutes and tell nobody: a request that is sent on it is never answered.
	maxIdleTime = 3 * time.Minute
)

func init() {
	backend.Register("unix", open)
	for _, server := range []string{"redis", "rediss", "valkey", "valkeys"} {
		for _, kind := range []string{"", "+sentinel", "+cluster"} {
			backend.Register(server+kind, open)
		}
	}
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	o := takeOptions(cfg)
	c, failover, err := clientOf(cfg)
	if err != nil {
		return nil, err
	}
	c.AddHook(logHook{cfg.Logger})
	b := New(c, o)
	b.owned, b.member, b.inspectOnly, b.failover = true, cfg.Member, cfg.InspectOnly, failover
	if b.member {
		return b, nil
	}
	if err := b.CheckServer(ctx); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// clientOf returns a client for a URL, and the options of one whose master Sentinels name.
func clientOf(cfg backend.Config) (redis.UniversalClient, *redis.FailoverOptions, error) {
	scheme, kind, _ := strings.Cut(cfg.URL.Scheme, "+")
	scheme = strings.Replace(scheme, "valkey", "redis", 1)
	switch kind {
	case "sentinel":
		return newFailoverClient(cfg, scheme)
	case "cluster":
		return newClusterClient(cfg, scheme)
	}
	return newSingleClient(cfg, scheme)
}

// takeOptions takes the parameters that are not the client library's.
func takeOptions(cfg backend.Config) *Options {
	p := &cfg.URL.Params
	wake := p.Take("dlock.wake", "message")
	o := &Options{
		PollOnly: wake == "poll",
		Poll:     p.TakeDuration("dlock.poll", DefaultPoll),
		Logger:   cfg.Logger,
		Replicas: p.TakeInt("dlock.replicas", 0),
		Keep:     p.TakeDuration("dlock.keep", defaultKeep),
	}
	if wake != "message" && wake != "poll" {
		p.Problem("dlock.wake", "want message or poll")
	}
	if o.Replicas < 0 {
		p.Problem("dlock.replicas", "want 0 or more")
	}
	if o.Poll <= 0 {
		p.Problem("dlock.poll", "want more than 0")
	}
	if o.Keep < minKeep {
		p.Problem("dlock.keep", "want 1s or more")
	}
	return o
}

// newSingleClient returns a client of one server.
func newSingleClient(cfg backend.Config, scheme string) (redis.UniversalClient, *redis.FailoverOptions, error) {
	u := cfg.URL
	if len(u.Hosts) > 1 {
		return nil, nil, invalid("want one host: several need +cluster or +sentinel in the scheme, or redlock://")
	}
	if u.Params.Has("db") && u.Scheme != "unix" && strings.Trim(u.Path, "/") != "" {
		return nil, nil, invalid("a database in the path and another in parameter db")
	}
	location := url.URL{Scheme: scheme, Host: strings.Join(u.Hosts, ""), Path: u.Path}
	o, err := parse(redis.ParseURL, cfg, location)
	if err != nil {
		return nil, nil, err
	}
	o.Username, o.Password, o.CredentialsProviderContext = u.User, u.Password.Reveal(), cfg.Credentials
	o.TLSConfig = tlsConfig(o.TLSConfig, cfg.TLS)
	o.Dialer = withLogger(dialerFor(o.DialTimeout, o.TLSConfig), cfg.Logger)
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.ReadTimeout = cmp.Or(o.ReadTimeout, readTimeout)
	o.ConnMaxIdleTime = cmp.Or(o.ConnMaxIdleTime, maxIdleTime)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if cfg.Member && !cfg.InspectOnly {
		o.OnConnect = func(ctx context.Context, c *redis.Conn) error { return announce(ctx, c) }
	}
	return redis.NewClient(o), nil, nil
}

// newFailoverClient returns a client of the master that Sentinels name. User and
// password are the master's. Those of the Sentinels are parameters.
func newFailoverClient(cfg backend.Config, scheme string) (redis.UniversalClient, *redis.FailoverOptions, error) {
	u := cfg.URL
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	user, password := u.Params.Take("sentinel_username", ""), u.Params.Take("sentinel_password", "")
	location := url.URL{Scheme: scheme, Host: "sentinel", Path: "/" + db}
	o, err := parse(redis.ParseFailoverURL, cfg, location,
		"addr", "db", "master_name", "password", "replica_only", "username")
	if err != nil {
		return nil, nil, err
	}
	if len(u.Hosts) == 0 || master == "" {
		return nil, nil, invalid("want host,host/name-of-the-master")
	}
	o.MasterName, o.SentinelAddrs = master, u.HostPorts("26379")
	o.SentinelUsername, o.SentinelPassword = user, password
	o.Username, o.Password, o.CredentialsProviderContext = u.User, u.Password.Reveal(), cfg.Credentials
	o.TLSConfig = tlsConfigOfHosts(o.TLSConfig, cfg.TLS)
	o.Dialer = withLogger(dialerFor(o.DialTimeout, o.TLSConfig), cfg.Logger)
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.ReadTimeout = cmp.Or(o.ReadTimeout, readTimeout)
	o.ConnMaxIdleTime = cmp.Or(o.ConnMaxIdleTime, maxIdleTime)
	return redis.NewFailoverClient(o), o, nil
}

// newClusterClient returns a client of a cluster. The URL names some of its nodes.
func newClusterClient(cfg backend.Config, scheme string) (redis.UniversalClient, *redis.FailoverOptions, error) {
	u := cfg.URL
	o, err := parse(redis.ParseClusterURL, cfg, url.URL{Scheme: scheme, Host: "node"},
		"addr", "read_only", "route_by_latency", "route_by_latency_tolerance", "route_randomly")
	if err != nil {
		return nil, nil, err
	}
	if len(u.Hosts) == 0 || strings.Trim(u.Path, "/") != "" {
		return nil, nil, invalid("want host,host and no path: a cluster has one database")
	}
	o.Addrs = u.HostPorts("6379")
	o.Username, o.Password, o.CredentialsProviderContext = u.User, u.Password.Reveal(), cfg.Credentials
	o.TLSConfig = tlsConfigOfHosts(o.TLSConfig, cfg.TLS)
	o.Dialer = withLogger(dialerFor(o.DialTimeout, o.TLSConfig), cfg.Logger)
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.ReadTimeout = cmp.Or(o.ReadTimeout, readTimeout)
	o.ConnMaxIdleTime = cmp.Or(o.ConnMaxIdleTime, maxIdleTime)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClusterClient(o)
	c.OnNewNode(func(node *redis.Client) { node.AddHook(slotsHook{}) })
	return c, nil, nil
}

// parse has the client library read the parameters that are left. What it reads has no
// user and no password, because its errors repeat what they are about. Parameters that
// are refused would change what dlock relies on.
func parse[T any](read func(string) (*T, error), cfg backend.Config, location url.URL, refused ...string) (*T, error) {
	p := &cfg.URL.Params
	for _, name := range refused {
		if p.Has(name) {
			return nil, backend.Fail(backend.ErrInvalidConfig, backend.UnknownParams([]string{name}))
		}
	}
	rest := p.Rest()
	if err := p.Done(); err != nil {
		return nil, err
	}
	location.RawQuery = rest.Encode()
	o, err := read(location.String())
	if err != nil {
		// Of this error only the names of unknown parameters are repeated.
		if unknown, ok := strings.CutPrefix(err.Error(), "redis: unexpected option: "); ok {
			return nil, backend.Fail(backend.ErrInvalidConfig, backend.UnknownParams(strings.Split(unknown, ", ")))
		}
		return nil, backend.RefusedParams(rest, func(others url.Values) error {
			location.RawQuery = others.Encode()
			_, err := read(location.String())
			return err
		}, "URL: the number of the database, the path or the value of a parameter is wrong")
	}
	// The client library panics on a negative size, and takes all memory for a great one.
	for _, text := range rest["pool_size"] {
		if size, _ := strconv.Atoi(text); size < 0 || size > maxPoolSize {
			return nil, invalid("parameter pool_size: want 0 to " + strconv.Itoa(maxPoolSize))
		}
	}
	return o, nil
}

// tlsConfigOfHosts is tlsConfig where every host proves its own name.
func tlsConfigOfHosts(parsed, given *tls.Config) *tls.Config {
	if parsed != nil {
		parsed.ServerName = ""
	}
	return tlsConfig(parsed, given)
}

// tlsConfig is the given one, for the host of the URL where it names none.
func tlsConfig(parsed, given *tls.Config) *tls.Config {
	if given == nil {
		return parsed
	}
	c := given.Clone()
	if c.ServerName == "" && parsed != nil {
		c.ServerName = parsed.ServerName
	}
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	return c
}

func invalid(problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, errors.New(problem))
}
