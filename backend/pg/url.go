package pg

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func init() {
	backend.Register("postgres", open)
	backend.Register("postgresql", open)
}

// driverParams are the parameters that the driver reads by itself.
var driverParams = []string{
	"application_name", "channel_binding", "connect_timeout", "require_auth", "sslcert", "sslkey",
	"sslmode", "sslnegotiation", "sslrootcert", "sslsni", "target_session_attrs",
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	opts, conn, err := parse(cfg)
	if err != nil {
		return nil, err
	}
	b, err := newBackend(conn, opts)
	if err != nil {
		return nil, err
	}
	b.credentials = cfg.Credentials
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// parse reads the URL. The password is not part of what the driver parses, so
// that no error of it can repeat it.
func parse(cfg backend.Config) (*Options, *pgx.ConnConfig, error) {
	p := &cfg.URL.Params
	opts := &Options{
		Namespace:     p.Take("namespace", ""),
		Schema:        p.Take("schema", ""),
		MaxParked:     p.TakeInt("parked", 0),
		Slice:         p.TakeDuration("slice", 0),
		MaxLocks:      p.TakeInt("max_locks", 0),
		SessionPooler: p.Has("pooler"),
	}
	pooler := p.Take("pooler", "session")
	driver := url.Values{}
	for _, name := range driverParams {
		if p.Has(name) {
			driver.Set(name, p.Take(name, ""))
		}
	}
	if err := p.Done(); err != nil {
		return nil, nil, err
	}
	if pooler != "session" {
		return nil, nil, backend.Fail(backend.ErrInvalidConfig, errors.New(`parameter pooler: want "session"`))
	}
	if cfg.TLS != nil && !driver.Has("sslmode") {
		driver.Set("sslmode", "require")
	}
	conn, err := pgx.ParseConfig(connString(cfg.URL, driver))
	if err != nil {
		return nil, nil, backend.Fail(backend.ErrInvalidConfig, errors.New("the driver does not accept the URL or the environment"))
	}
	if cfg.URL.Password != "" {
		conn.Password = cfg.URL.Password
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = strings.TrimSpace("dlock " + cfg.Label)
	}
	if cfg.TLS != nil {
		useTLS(&conn.Config, cfg.TLS)
	}
	return opts, conn, nil
}

// connString is the URL as the driver wants it, without the password.
func connString(u *backend.URL, params url.Values) string {
	out := url.URL{Scheme: "postgres", Host: strings.Join(u.Hosts, ","), Path: u.Path, RawQuery: params.Encode()}
	if u.User != "" {
		out.User = url.User(u.User)
	}
	return out.String()
}

// useTLS puts t in the place of the TLS settings that the driver has made.
func useTLS(cfg *pgconn.Config, t *tls.Config) {
	cfg.TLSConfig = tlsFor(t, cfg.Host, cfg.SSLNegotiation)
	for _, f := range cfg.Fallbacks {
		f.TLSConfig = tlsFor(t, f.Host, cfg.SSLNegotiation)
	}
}

// tlsFor is t for host. There is no TLS on a Unix socket.
func tlsFor(t *tls.Config, host, negotiation string) *tls.Config {
	if strings.HasPrefix(host, "/") {
		return nil
	}
	t = t.Clone()
	if t.ServerName == "" {
		t.ServerName = host
	}
	if negotiation == "direct" {
		t.NextProtos = []string{"postgresql"} // which the server insists on
	}
	return t
}
