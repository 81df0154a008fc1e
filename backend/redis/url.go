package redis

import (
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

// opening bounds Open on a server that does not answer.
const opening = 10 * time.Second

// A scheme is how the client library calls that of a URL, and how it makes a
// client of the rest.
type scheme struct {
	name   string
	client func(backend.Config, string) (redis.UniversalClient, error)
}

var schemes = map[string]scheme{
	"redis":            {"redis", singleClient},
	"rediss":           {"rediss", singleClient},
	"unix":             {"unix", singleClient},
	"valkey":           {"redis", singleClient},
	"valkeys":          {"rediss", singleClient},
	"redis+sentinel":   {"redis", sentinelClient},
	"rediss+sentinel":  {"rediss", sentinelClient},
	"valkey+sentinel":  {"redis", sentinelClient},
	"valkeys+sentinel": {"rediss", sentinelClient},
	"redis+cluster":    {"redis", clusterClient},
	"rediss+cluster":   {"rediss", clusterClient},
	"valkey+cluster":   {"redis", clusterClient},
	"valkeys+cluster":  {"rediss", clusterClient},
}

func init() {
	for name := range schemes {
		backend.Register(name, open)
	}
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	o, err := takeOptions(cfg)
	if err != nil {
		return nil, err
	}
	s := schemes[cfg.URL.Scheme]
	c, err := s.client(cfg, s.name)
	if err != nil {
		return nil, err
	}
	b := New(c, o)
	b.owned, b.member = true, cfg.Member
	if b.member {
		return b, nil
	}
	if err := b.Inspect(ctx); err != nil {
		_ = b.Close(ctx)
		return nil, err
	}
	return b, nil
}

// takeOptions takes the parameters that are ours.
func takeOptions(cfg backend.Config) (*Options, error) {
	p := &cfg.URL.Params
	wake := p.Take("dlock.wake", "message")
	o := &Options{
		PollOnly: wake == "poll",
		Poll:     p.TakeDuration("dlock.poll", DefaultPoll),
		Logger:   cfg.Logger,
		Replicas: p.TakeInt("dlock.replicas", 0),
		Keep:     p.TakeDuration("dlock.keep", keep),
	}
	if wake != "message" && wake != "poll" {
		return nil, invalid("parameter dlock.wake: want message or poll")
	}
	if o.Replicas < 0 {
		return nil, invalid("parameter dlock.replicas: want 0 or more")
	}
	if o.Keep < minKeep {
		return nil, invalid("parameter dlock.keep: want 1s or more")
	}
	if o.Poll <= 0 {
		return nil, invalid("parameter dlock.poll: want more than 0")
	}
	return o, nil
}

// clean is the URL that the client library reads: without user and password,
// because its errors repeat what they are about, and of several hosts only the
// first.
func clean(cfg backend.Config, scheme, host, path string, hidden ...string) (string, error) {
	p := &cfg.URL.Params
	for _, name := range hidden {
		if p.Has(name) {
			return "", invalid("unknown parameter " + strconv.Quote(name))
		}
	}
	u := url.URL{Scheme: scheme, Host: host, Path: path, RawQuery: p.Rest().Encode()}
	return u.String(), p.Done()
}

// replyLimit bounds the wait for one reply where the URL does not.
func replyLimit(given time.Duration) time.Duration {
	if given == 0 {
		return 2 * time.Second
	}
	return given
}

// singleClient is a client of one server.
func singleClient(cfg backend.Config, scheme string) (redis.UniversalClient, error) {
	u := cfg.URL
	if len(u.Hosts) > 1 {
		return nil, invalid("want one host")
	}
	if u.Params.Has("db") && u.Scheme != "unix" && strings.Trim(u.Path, "/") != "" {
		return nil, invalid("a database in the path and another in parameter db")
	}
	text, err := clean(cfg, scheme, strings.Join(u.Hosts, ""), u.Path)
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, parameterError(err)
	}
	if err := checkPool(o.PoolSize); err != nil {
		return nil, err
	}
	o.Username, o.Password = u.User, u.Password.Reveal()
	o.CredentialsProviderContext = cfg.Credentials
	o.TLSConfig = tlsConfig(o.TLSConfig, cfg.TLS)
	o.Dialer = dialerFor(o.DialTimeout, o.TLSConfig)
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadTimeout = replyLimit(o.ReadTimeout)
	if cfg.Member {
		o.OnConnect = announce
	}
	return redis.NewClient(o), nil
}

// sentinelClient is a client of the master that Sentinels name. User and
// password are for that; those for the Sentinels are parameters.
func sentinelClient(cfg backend.Config, scheme string) (redis.UniversalClient, error) {
	u := cfg.URL
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	user, password := u.Params.Take("sentinel_username", ""), u.Params.Take("sentinel_password", "")
	text, err := clean(cfg, scheme, "sentinel", "/"+db,
		"addr", "db", "master_name", "password", "replica_only", "username")
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseFailoverURL(text)
	if err != nil {
		return nil, parameterError(err)
	}
	if err := checkPool(o.PoolSize); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 || master == "" {
		return nil, invalid("want host,host/name-of-the-master")
	}
	o.MasterName, o.SentinelAddrs = master, u.HostPorts("26379")
	o.SentinelUsername, o.SentinelPassword = user, password
	o.Username, o.Password = u.User, u.Password.Reveal()
	o.CredentialsProviderContext = cfg.Credentials
	o.TLSConfig = eachHost(o.TLSConfig, cfg.TLS)
	o.Dialer = dialerFor(o.DialTimeout, o.TLSConfig)
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.ReadTimeout = replyLimit(o.ReadTimeout)
	return redis.NewFailoverClient(o), nil
}

// clusterClient is a client of a cluster, some of whose nodes the URL names.
func clusterClient(cfg backend.Config, scheme string) (redis.UniversalClient, error) {
	u := cfg.URL
	text, err := clean(cfg, scheme, "node", "",
		"addr", "read_only", "route_by_latency", "route_by_latency_tolerance", "route_randomly")
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, parameterError(err)
	}
	if err := checkPool(o.PoolSize); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 || strings.Trim(u.Path, "/") != "" {
		return nil, invalid("want host,host and no path: a cluster has one database")
	}
	o.Addrs = u.HostPorts("6379")
	o.Username, o.Password = u.User, u.Password.Reveal()
	o.CredentialsProviderContext = cfg.Credentials
	o.TLSConfig = eachHost(o.TLSConfig, cfg.TLS)
	o.Dialer = dialerFor(o.DialTimeout, o.TLSConfig)
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadTimeout = replyLimit(o.ReadTimeout)
	return redis.NewClusterClient(o), nil
}

// checkPool refuses a pool that the client library panics on, or would take all
// memory for.
func checkPool(size int) error {
	const most = 1 << 16
	if size < 0 || size > most {
		return invalid("parameter pool_size: want 0 to " + strconv.Itoa(most))
	}
	return nil
}

// eachHost is tlsConfig where every host proves its own name.
func eachHost(parsed, given *tls.Config) *tls.Config {
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

// parameterError says what the client library did not like. Only the names of
// unknown parameters are repeated.
func parameterError(err error) error {
	if names, ok := strings.CutPrefix(err.Error(), "redis: unexpected option: "); ok {
		return invalid("unknown parameter " + names)
	}
	return invalid("URL: the number of the database, the path or the value of a parameter is wrong")
}

func invalid(problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, errors.New(problem))
}
