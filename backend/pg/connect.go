package pg

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
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
	errTimeline = errors.New("the server has been promoted too often for tokens to grow any more")
)

// dial makes a session for l.
func (b *Backend) dial(ctx context.Context, l line) (*session, error) {
	ctx, cancel := backend.Bound(ctx, dialLimit)
	defer cancel()
	cfg, err := b.target(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, classify(err)
	}
	s, err := b.equip(ctx, conn, l)
	if err != nil {
		_ = conn.Close(ctx) // it is of no use
		return nil, classify(err)
	}
	return s, nil
}

// target is the configuration with the credentials of the moment. Among
// several hosts the primary is sought.
func (b *Backend) target(ctx context.Context) (*pgconn.Config, error) {
	cfg := b.config.Config.Copy()
	if f := b.credentials; f != nil {
		user, password, err := f(ctx)
		if err != nil {
			return nil, backend.Fail(backend.ErrAuth, err)
		}
		cfg.User, cfg.Password = user, password
	}
	if n := hosts(cfg); cfg.ConnectTimeout == 0 && n > 1 {
		cfg.ConnectTimeout = dialLimit / time.Duration(n) // one that is silent must leave time for the others
	}
	first := cfg.ValidateConnect
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if first != nil {
			if err := first(ctx, conn); err != nil {
				return err
			}
		}
		return b.inspect(ctx, conn)
	}
	return cfg, nil
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

// facts is asked of every new connection. Only a primary knows its timeline.
const facts = `SELECT pg_backend_pid(), pg_is_in_recovery()::int, current_setting('server_version_num'),
	current_setting('max_locks_per_transaction')::int8
		* (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8),
	CASE WHEN pg_is_in_recovery() THEN 0
		ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8 END`

// inspect refuses servers on which locks would not exclude.
func (b *Backend) inspect(ctx context.Context, conn *pgconn.PgConn) error {
	values, err := queryInts(ctx, conn, facts)
	if err != nil {
		return err
	}
	pid, standby, version, locks, timeline := values[0], values[1], values[2], values[3], values[4]
	switch {
	case version < 100000:
		return backend.Fail(backend.ErrUnsupported, errOld)
	case standby != 0:
		return backend.Fail(backend.ErrUnavailable, errStandby)
	case uint32(pid) != conn.PID() && !b.opts.SessionPooler:
		return backend.Fail(backend.ErrInvalidConfig, errPooler)
	case timeline >= 1<<(64-numberBits):
		return backend.Fail(backend.ErrUnsupported, errTimeline)
	}
	conn.CustomData()[factsKey] = serverFacts{uint32(pid), version, int(locks), uint64(timeline)}
	return nil
}

// leaseVersion is the first one that ends idle sessions.
const leaseVersion = 140000

const factsKey = "dlock"

type serverFacts struct {
	pid      uint32
	version  int64
	locks    int // that the lock table has room for
	timeline uint64
}

// equip makes a session of a connection.
func (b *Backend) equip(ctx context.Context, conn *pgconn.PgConn, l line) (*session, error) {
	known := conn.CustomData()[factsKey].(serverFacts)
	if err := b.settings(ctx, conn, l.ttl); err != nil {
		return nil, err
	}
	kept, err := b.prepareSequence(ctx, conn, known.version)
	if err != nil {
		return nil, err
	}
	if err := b.begin(ctx, conn, known.version, l); err != nil {
		return nil, err
	}
	if err := conn.SyncConn(ctx); err != nil {
		return nil, err
	}
	raw, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	b.room.Store(int64(known.locks))
	return &session{
		backend:  b,
		pg:       conn,
		conn:     raw.Conn,
		front:    raw.Frontend,
		pid:      known.pid,
		epoch:    known.timeline << numberBits,
		ranges:   kept == reserved,
		grants:   make(map[*grant]struct{}),
		ttl:      l.ttl,
		listens:  l.purpose == listening,
		reserved: l.purpose == listening,
		reading:  true,
		rouse:    make(chan struct{}, 1),
		leased:   known.version >= leaseVersion,
		prepared: make(map[form]bool),
		bind: pgproto3.Bind{
			ParameterFormatCodes: []int16{pgproto3.BinaryFormat},
			ResultFormatCodes:    []int16{pgproto3.BinaryFormat},
			Parameters:           make([][]byte, 1),
		},
	}, nil
}

// settings makes the connection independent of the defaults of role and
// database.
func (b *Backend) settings(ctx context.Context, conn *pgconn.PgConn, ttl time.Duration) error {
	needed := fmt.Sprintf("SET statement_timeout=0; SET default_transaction_read_only=off; "+
		"SET client_min_messages=error; SET synchronous_commit=local; SET lock_timeout=%d", b.opts.Slice.Milliseconds())
	if err := conn.Exec(ctx, needed).Close(); err != nil {
		return err
	}
	for _, wish := range wishes(ttl) {
		err := conn.Exec(ctx, "SET "+wish).Close()
		if _, refused := errors.AsType[*pgconn.PgError](err); err != nil && (!refused || conn.IsClosed()) {
			return err
		}
	}
	return nil
}

// begin gives the connection its lease. It comes last: from then on the server
// waits no longer than that for the next word.
func (b *Backend) begin(ctx context.Context, conn *pgconn.PgConn, version int64, l line) error {
	var last []string
	if version >= leaseVersion {
		last = append(last, fmt.Sprintf("SET idle_session_timeout=%d", l.ttl.Milliseconds()))
	}
	if l.purpose == listening {
		last = append(last, "LISTEN "+wakeChannel)
	}
	return conn.Exec(ctx, strings.Join(last, "; ")).Close()
}

// wishes are settings that not every server knows or lets one set. They are
// for connections that break without a word while the server does not count
// them as idle, and for servers too old to count at all: those find out no
// sooner than after ttl.
func wishes(ttl time.Duration) []string {
	seconds := func(d time.Duration) int { return int(max((d+time.Second-1)/time.Second, 1)) }
	const probes = 4
	return []string{
		"idle_session_timeout=0",
		"transaction_timeout=0",
		fmt.Sprintf("tcp_keepalives_idle=%d", seconds(ttl/2)),
		fmt.Sprintf("tcp_keepalives_interval=%d", seconds(ttl/2/probes)),
		fmt.Sprintf("tcp_keepalives_count=%d", probes),
		fmt.Sprintf("tcp_user_timeout=%d", ttl.Milliseconds()),
		fmt.Sprintf("client_connection_check_interval=%d", min(ttl/3, 2*time.Second).Milliseconds()),
	}
}

// queryInts runs a query that returns one row of whole numbers.
func queryInts(ctx context.Context, conn *pgconn.PgConn, sql string) ([]int64, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return nil, errProtocol
	}
	var out []int64
	for _, text := range results[0].Rows[0] {
		v, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return nil, errProtocol
		}
		out = append(out, v)
	}
	return out, nil
}

func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
