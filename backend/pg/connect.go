package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// dialLimit bounds how long a connection may take to be of use.
const dialLimit = 10 * time.Second

var (
	errPooler = errors.New("a pooler stands before the server: connect to the server itself, " +
		"or set pooler=session if the pooler gives each client a server connection for as long as it stays")
	errStandby  = errors.New("the server is a standby, whose locks are not those of the primary")
	errOld      = errors.New("the server is older than Postgres 10")
	errNoLocks  = errors.New("the server accepts advisory locks and does not keep them")
	errNotMade  = errors.New("there are no sequences of tokens yet")
	errNumbers  = errors.New("the server knows locks by numbers, and not their names")
	errNoAnswer = errors.New("the server has not answered in time")
)

// dial makes a session with that lease, or one that listens. The server is asked twice after
// the login: what it is, and to prepare everything.
func (b *Backend) dial(ctx context.Context, key time.Duration) (*session, error) {
	lease := cmp.Or(key, listenLease)
	ctx, cancel := backend.BoundCause(ctx, dialLimit, errNoAnswer)
	defer cancel()
	cfg, err := b.connectConfig(ctx, lease)
	if err != nil {
		return nil, err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err)
	}
	s, err := b.setUp(ctx, conn, lease, key == forListening)
	if err != nil {
		_ = conn.Close(ctx) // it is of no use
		return nil, classify(err)
	}
	return s, nil
}

// connectConfig is the configuration with the credentials of the moment. Among
// several hosts the primary is sought.
func (b *Backend) connectConfig(ctx context.Context, lease time.Duration) (*pgconn.Config, error) {
	full := b.config.Copy()
	if f := b.opts.BeforeConnect; f != nil {
		if err := f(ctx, full); err != nil {
			return nil, backend.Fail(backend.ErrAuth, err)
		}
	}
	cfg := &full.Config
	cfg.BuildFrontend = bounded(cfg.BuildFrontend)
	if end, ok := ctx.Deadline(); ok && cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = time.Until(end) / time.Duration(hosts(cfg)) // one that is silent must leave time for the others
	}
	first := cfg.ValidateConnect
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if first == nil {
			return b.checkConnection(ctx, conn, lease)
		}
		return b.checkAfter(ctx, conn, lease, first)
	}
	return cfg, nil
}

// checkAfter is checkConnection of a connection that the driver has a condition for. A
// connection that it would rather do without may be taken all the same.
func (b *Backend) checkAfter(ctx context.Context, conn *pgconn.PgConn, lease time.Duration, condition pgconn.ValidateConnectFunc) error {
	if _, err := pipeline(ctx, conn, []step{{sql: ownSchemas}}); err != nil {
		return err
	}
	unfit := condition(ctx, conn)
	var notPreferred *pgconn.NotPreferredError
	if unfit != nil && !errors.As(unfit, &notPreferred) {
		return unfit
	}
	if err := b.checkConnection(ctx, conn, lease); err != nil {
		return err
	}
	return unfit
}

// maxMessage bounds a message of the server. None of those that we ask for is longer.
const maxMessage = 1 << 20

// bounded has the driver break a connection on which a longer message is announced,
// before it makes room for that.
func bounded(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := build(r, w)
		f.SetMaxBodyLen(maxMessage)
		return f
	}
}

// withCredentials is a BeforeConnect that asks f for user and password.
func withCredentials(f func(context.Context) (user, password string, err error)) func(context.Context, *pgx.ConnConfig) error {
	return func(ctx context.Context, cfg *pgx.ConnConfig) (err error) {
		cfg.User, cfg.Password, err = f(ctx)
		return err
	}
}

// hosts counts the addresses of cfg. Each may be there with TLS and without.
func hosts(cfg *pgconn.Config) int {
	n, host, port := 1, cfg.Host, cfg.Port
	for _, f := range cfg.Fallbacks {
		if f.Host != host || f.Port != port {
			n, host, port = n+1, f.Host, f.Port
		}
	}
	return n
}

// factsQuery is asked of every new connection.
const factsQuery = `SELECT pg_backend_pid(), pg_is_in_recovery()::int, current_setting('server_version_num'),
	` + lockTableRoom

// lockTableRoom is how many locks the server's lock table has room for.
const lockTableRoom = `current_setting('max_locks_per_transaction')::int8
	* (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8)`

// ownSchemas has names mean what the server's own catalog says. In any other schema that
// is searched, whoever may create things there could define a function or an operator that
// fits our arguments better, or stands before the server's own, and have it run with the
// rights of this role. So a connection is asked this first, by a name that has its schema.
const ownSchemas = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)"

// checkConnection refuses servers on which locks would not exclude. In the same round trip
// it makes the connection independent of the defaults of role and database, and looks
// for the sequences.
func (b *Backend) checkConnection(ctx context.Context, conn *pgconn.PgConn, lease time.Duration) error {
	needed := fmt.Sprintf("SELECT set_config('statement_timeout', '0', false), set_config('default_transaction_read_only', 'off', false),"+
		" set_config('client_min_messages', 'error', false), set_config('synchronous_commit', 'local', false),"+
		" set_config('lock_timeout', '%d', false)", b.opts.Slice.Milliseconds())
	steps := []step{{sql: ownSchemas}, {sql: factsQuery}, {sql: needed}, {sql: b.sequenceFacts()}}
	for _, wish := range optionalSettings(lease) {
		steps = append(steps, step{sql: "SET " + wish, mayFail: true})
	}
	results, err := pipeline(ctx, conn, steps)
	if err != nil && len(results) < 2 {
		return err
	}
	values, bad := ints(results[1])
	if bad != nil || len(values) != 4 {
		return errProtocol
	}
	pid, standby, version := values[0], values[1], values[2]
	switch {
	case version < 100000:
		return backend.Fail(backend.ErrUnsupported, errOld)
	case standby != 0:
		return backend.Fail(backend.ErrUnavailable, errStandby)
	case uint32(pid) != conn.PID() && !b.opts.SessionPooler:
		return backend.Fail(backend.ErrInvalidConfig, errPooler)
	case err != nil:
		return err
	}
	sequence, err := ints(results[3])
	if err != nil || len(sequence) != 7 {
		return errProtocol
	}
	conn.CustomData()[factsKey] = serverFacts{uint32(pid), version, values[3], sequence}
	return nil
}

// leaseVersion is the first one that ends idle sessions.
const leaseVersion = 140000

const factsKey = "dlock"

type serverFacts struct {
	pid      uint32
	version  int64
	locks    int64 // that the lock table has room for
	sequence []int64
}

// setUp makes a session of a connection. The lease comes last: from then on the server
// waits no longer than that for the next word.
func (b *Backend) setUp(ctx context.Context, conn *pgconn.PgConn, lease time.Duration, listens bool) (*session, error) {
	known := conn.CustomData()[factsKey].(serverFacts)
	kept, err := b.prepareSequence(ctx, conn, known.sequence, known.version)
	if err != nil {
		return nil, err
	}
	floor, numbers := raise(kept)
	steps := []step{{sql: b.sequences.in("SELECT " + floor)}, {sql: b.sequences.in("SELECT " + numbers)}}
	steps = append(steps, preparations(&b.sequences, kept)...)
	if listens {
		steps = append(steps, step{sql: "LISTEN " + wakeChannel})
	}
	if known.version >= leaseVersion {
		steps = append(steps, step{sql: fmt.Sprintf("SET idle_session_timeout=%d", lease.Milliseconds())})
	}
	at := time.Now()
	results, err := pipeline(ctx, conn, steps)
	if err != nil {
		return nil, err
	}
	raised, err := ints(results[1])
	if err != nil {
		return nil, err
	}
	if err := conn.SyncConn(ctx); err != nil {
		return nil, err
	}
	raw, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	b.lockTableSize.Store(known.locks)
	return &session{
		backend: b,
		pg:      conn,
		conn:    raw.Conn,
		front:   raw.Frontend,
		pid:     known.pid,
		version: known.version,
		made:    at,
		raised:  raised[0], raisedAt: at,
		listens: listens,
		grants:  make(map[*grant]struct{}),
		ttl:     lease,
	}, nil
}

// checkLocks takes a lock and looks for it in the server's list, with one
// statement each.
func checkLocks(ctx context.Context, s *session) error {
	key := rand.Int64()
	if _, err := s.do(ctx, tryShared, key); err != nil {
		return classify(err)
	}
	c, err := s.do(ctx, countOwn, key)
	switch {
	case err != nil:
		return classify(err)
	case c.value == 0:
		return backend.Fail(backend.ErrUnsupported, errNoLocks)
	}
	_, err = s.do(ctx, dropShared, key)
	return err
}

// optionalSettings are settings that not every server knows or lets one set. They are
// for connections that break without a word while the server does not count
// them as idle, and for servers too old to count at all: those find out no
// sooner than after the lease.
func optionalSettings(lease time.Duration) []string {
	seconds := func(d time.Duration) int { return int(max((d+time.Second-1)/time.Second, 1)) }
	const probes = 4
	return []string{
		"idle_session_timeout=0",
		"transaction_timeout=0",
		fmt.Sprintf("tcp_keepalives_idle=%d", seconds(lease/2)),
		fmt.Sprintf("tcp_keepalives_interval=%d", seconds(lease/2/probes)),
		fmt.Sprintf("tcp_keepalives_count=%d", probes),
		fmt.Sprintf("tcp_user_timeout=%d", lease.Milliseconds()),
		fmt.Sprintf("client_connection_check_interval=%d", min(lease/3, 2*time.Second).Milliseconds()),
	}
}

// A step is a statement to be run, or to be prepared.
type step struct {
	prepare   string // its name then
	sql       string
	arguments []uint32
	mayFail   bool
}

// pipeline runs steps in one round trip, each as a transaction. It returns the rows
// of each that was run up to the first failure that counts, and that.
func pipeline(ctx context.Context, conn *pgconn.PgConn, steps []step) ([]*pgconn.Result, error) {
	p := conn.StartPipeline(ctx)
	for _, st := range steps {
		if st.prepare != "" {
			p.SendPrepare(st.prepare, st.sql, st.arguments)
		} else {
			p.SendQueryParams(st.sql, nil, nil, nil, nil)
		}
		p.SendPipelineSync()
	}
	if err := p.Flush(); err != nil {
		_ = p.Close()
		return nil, err
	}
	var out []*pgconn.Result
	var failed error
	for _, st := range steps {
		result, err := readStep(p)
		if failed == nil && err == nil {
			out = append(out, result)
		}
		if err != nil && !(isServers(err) && st.mayFail && !conn.IsClosed()) && failed == nil {
			failed = err
		}
		if conn.IsClosed() {
			break
		}
	}
	if err := p.Close(); failed == nil && err != nil {
		if !isServers(err) {
			failed = err
		}
	}
	return out, failed
}

// readStep takes what the server says to one step, up to the end of its transaction. If
// the connection ends before that, the error is why, whatever has failed until then.
func readStep(p *pgconn.Pipeline) (result *pgconn.Result, failed error) {
	for {
		r, err := p.GetResults()
		if rows, ok := r.(*pgconn.ResultReader); ok {
			result = rows.Read()
			err = result.Err
		}
		_, synced := r.(*pgconn.PipelineSync)
		switch {
		case err != nil && (!isServers(err) || isFatal(err)):
			return nil, err
		case err != nil:
			failed = err
		case synced:
			return result, failed
		case r == nil:
			return nil, errProtocol
		}
	}
}

// ints returns the numbers in the one row of r.
func ints(r *pgconn.Result) ([]int64, error) {
	if r == nil || len(r.Rows) != 1 {
		return nil, errProtocol
	}
	var out []int64
	for _, text := range r.Rows[0] {
		v, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return nil, errProtocol
		}
		out = append(out, v)
	}
	return out, nil
}

// quoteLiteral is s as a string of SQL, whatever standard_conforming_strings says.
func quoteLiteral(s string) string {
	return "E'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(s) + "'"
}
