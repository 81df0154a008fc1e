package pg

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
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
	"application_name", "channel_binding", "connect_timeout", "host", "options", "port", "require_auth", "sslcert",
	"sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni", "target_session_attrs",
}

func open(ctx context.Context, cfg backend.Config) (backend.Backend, error) {
	if cfg.TTL != 0 && cfg.TTL < minTTL {
		return nil, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("%v is less than %v", cfg.TTL, minTTL))
	}
	opts, conn, err := parse(cfg)
	if err != nil {
		return nil, err
	}
	b, err := newBackend(conn, opts)
	if err != nil {
		return nil, err
	}
	b.inspectOnly = cfg.InspectOnly
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// parse reads the URL. The password is not part of what the driver parses, so
// that no error of it can repeat it.
func parse(cfg backend.Config) (*Options, *pgx.ConnConfig, error) {
	opts := takeOptions(&cfg.URL.Params)
	driver := url.Values{}
	for _, name := range driverParams {
		if value := cfg.URL.Params.Take(name, ""); value != "" {
			driver.Set(name, value)
		}
	}
	if err := cfg.URL.Params.Done(); err != nil {
		return nil, nil, err
	}
	if cfg.TLS != nil && !driver.Has("sslmode") {
		driver.Set("sslmode", "require")
	}
	conn, err := secured(cfg.URL, driver)
	if err != nil {
		return nil, nil, backend.RefusedParams(driver, func(others url.Values) error {
			_, err := secured(cfg.URL, others)
			return err
		}, "the driver does not accept the URL or the environment")
	}
	if cfg.Credentials != nil {
		opts.BeforeConnect = withCredentials(cfg.Credentials)
	}
	if !cfg.URL.Password.IsZero() {
		conn.Password = cfg.URL.Password.Reveal()
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = strings.TrimSpace("dlock " + cfg.Label)
	}
	if cfg.TLS != nil {
		useTLS(&conn.Config, cfg.TLS)
	}
	return opts, conn, nil
}

// takeOptions takes the parameters that are not the driver's.
func takeOptions(p *backend.Params) *Options {
	o := &Options{
		Namespace:     takeText(p, "namespace"),
		Schema:        takeText(p, "schema"),
		Owner:         takeText(p, "owner"),
		MaxParked:     takeInt(p, "parked", 1),
		MaxConns:      takeInt(p, "max_conns", minConns),
		MaxLocks:      takeInt(p, "max_locks", 1),
		Slice:         p.TakeDuration("slice", defaults.Slice),
		SessionPooler: p.Has("pooler"),
	}
	if !validSlice(o.Slice) {
		p.Problem("slice", wantSlice)
	}
	if most := cmp.Or(o.MaxConns, defaults.MaxConns); o.MaxParked > most {
		p.Problem("parked", fmt.Sprintf("want at most max_conns, %d", most))
	}
	if p.Take("pooler", "session") != "session" {
		p.Problem("pooler", `want "session"`)
	}
	return o
}

// takeInt returns 0 if the parameter is not given.
func takeInt(p *backend.Params, name string, least int) int {
	if !p.Has(name) {
		return 0
	}
	n := p.TakeInt(name, least)
	if n < least {
		p.Problem(name, fmt.Sprintf("want %d or more", least))
	}
	return n
}

func takeText(p *backend.Params, name string) string {
	text := p.Take(name, "")
	if strings.Contains(text, "\x00") {
		p.Problem(name, "want no NUL")
	}
	return text
}

// secured is the driver's configuration. What says nothing of TLS gets it, unless all
// hosts are this machine. There TLS is used if the server has it. A server that proves
// nothing, with TLS or without, does not get the password as it is then.
func secured(u *backend.URL, params url.Values) (*pgx.ConnConfig, error) {
	conn, err := pgx.ParseConfig(connString(u, params))
	if err != nil || params.Has("sslmode") || os.Getenv("PGSSLMODE") != "" {
		return conn, err
	}
	unsaid, err := withMode(u, params, "prefer") // as the driver has it by itself
	if err != nil || !slices.Equal(strengths(conn), strengths(unsaid)) {
		return conn, err // a service of the environment says something
	}
	if !isLocal(&conn.Config) {
		if conn, err = withMode(u, params, "require"); err != nil {
			return nil, err
		}
	}
	if conn.RequireAuth == "" && !verifies(conn.TLSConfig) {
		conn.RequireAuth = "!password"
	}
	return conn, nil
}

// withMode is the driver's configuration with that sslmode, whatever the environment says.
func withMode(u *backend.URL, params url.Values, mode string) (*pgx.ConnConfig, error) {
	params = maps.Clone(params)
	params.Set("sslmode", mode)
	return pgx.ParseConfig(connString(u, params))
}

// strengths tells what each try to connect demands: nothing, TLS, or a certificate.
func strengths(cfg *pgx.ConnConfig) (all []int) {
	of := func(t *tls.Config) int {
		switch {
		case t == nil:
			return 0
		case !verifies(t):
			return 1
		}
		return 2
	}
	all = append(all, of(cfg.TLSConfig))
	for _, f := range cfg.Fallbacks {
		all = append(all, of(f.TLSConfig))
	}
	return all
}

// verifies reports whether t looks at certificates. The driver does so by itself where it
// knows the authority and not the name.
func verifies(t *tls.Config) bool {
	return t != nil && (!t.InsecureSkipVerify || t.VerifyPeerCertificate != nil || t.VerifyConnection != nil)
}

// isLocal reports whether all hosts are Unix sockets or loopback addresses.
func isLocal(cfg *pgconn.Config) bool {
	local := func(host string) bool {
		ip := net.ParseIP(host)
		return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" || ip != nil && ip.IsLoopback()
	}
	for _, f := range cfg.Fallbacks {
		if !local(f.Host) {
			return false
		}
	}
	return local(cfg.Host)
}

// connString is the URL as the driver wants it, without the password.
func connString(u *backend.URL, params url.Values) string {
	query := strings.ReplaceAll(params.Encode(), "+", "%20") // the driver takes a plus for a plus
	out := url.URL{Scheme: "postgres", Host: strings.Join(u.Hosts, ","), Path: u.Path, RawQuery: query}
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
