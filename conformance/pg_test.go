package conformance_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/pg"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
)

// pgHarness runs a server with room for the locks of the greatest property.
func pgHarness(t testing.TB) conformance.Harness {
	s := server.Start(t, server.Postgres{Settings: []string{"max_locks_per_transaction=128", "max_connections=300"}})
	p := &pgServer{proxied: proxied{target: s.Addr(), framing: faultnet.Postgres}, server: s}
	t.Cleanup(p.hangUp)
	return conformance.Harness{
		Name:        "pg",
		Version:     s.Version(),
		Scheme:      "postgres",
		URL:         p.url("postgres", s.Addr()),
		TTL:         *ttl,
		BelowMinTTL: 50 * time.Millisecond,
		Leased:      true,
		Open:        p.open,
		Evict:       p.evict,
		Ops:         p.requests,
		Conns:       p.connections,
		Waiting:     p.waiting,
		Residue:     p.residue,
		State:       p.state,
		Restart:     p.restart,
		BadLogin:    p.url("nobody:wrong", s.Addr()),
		Nowhere:     p.url("postgres", "127.0.0.1:1"),
		NoLabels:    true,
		Optional:    []string{"BatchReleaser", "Downgrader", "Inspector", "MinTTLer", "Pinger", "Renewer", "Transferer"},
	}
}

// A pgServer is the server under test.
type pgServer struct {
	proxied
	server *server.Server

	mu    sync.Mutex
	admin *pgx.Conn // to ask the server how things are; nil: not connected
}

func (p *pgServer) url(user, addr string) string {
	return "postgres://" + user + "@" + addr + "/postgres?sslmode=disable"
}

func (p *pgServer) open(t testing.TB, o dlock.Options) *conformance.Peer {
	t.Helper()
	proxy := p.listen(t)
	cfg, err := pgx.ParseConfig(p.url("postgres", proxy.Addr()))
	must(t, err)
	cfg.RuntimeParams["application_name"] = strings.TrimSpace("dlock " + o.Label) // as Open does
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// A slice longer than any property keeps the order of arrival.
	b, err := pg.New(ctx, cfg, &pg.Options{Slice: time.Minute})
	must(t, err)
	return p.peer(t, b, o, proxy)
}

// query runs sql and returns its rows as text.
func (p *pgServer) query(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin == nil {
		var err error
		p.admin, err = pgx.Connect(ctx, p.url("postgres", p.server.Addr()))
		must(t, err)
	}
	rows, err := p.admin.Query(ctx, sql, args...)
	must(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return out
}

func (p *pgServer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin != nil {
		_ = p.admin.Close(context.Background()) // the server ends it in any case
		p.admin = nil
	}
}

// locksOf selects what pg_locks says of a key given in two halves.
const locksOf = ` FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
	AND classid = $1::int8::oid AND objid = $2::int8::oid AND granted = $3`

func halves(name string) (int64, int64) {
	sum := sha256.Sum256([]byte("dlock\x00" + name))
	return int64(binary.BigEndian.Uint32(sum[:])), int64(binary.BigEndian.Uint32(sum[4:]))
}

func (p *pgServer) evict(t testing.TB, name string) {
	high, low := halves(name)
	p.query(t, "SELECT pg_terminate_backend(pid)::text"+locksOf, high, low, true)
}

// waiting counts who is in the server's queue, and who has said on the second
// key that it waits to be told.
func (p *pgServer) waiting(t testing.TB, name string) int {
	high, low := halves(name)
	queued := p.query(t, "SELECT pid::text"+locksOf, high, low, false)
	const second = 0x55555555
	told := p.query(t, "SELECT pid::text"+locksOf, high^second, low^second, true)
	return len(queued) + len(told)
}

func (p *pgServer) residue(t testing.TB) []string {
	return p.query(t, `SELECT format('session %s of %s: %s', pid, application_name, query) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
}

// state is the number of the next transaction that writes, the sequences and all advisory
// locks.
func (p *pgServer) state(t testing.TB) string {
	return strings.Join(p.query(t, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text
		UNION ALL SELECT format('%s %s', sequencename, last_value) FROM pg_sequences WHERE sequencename LIKE 'dlock%'
		UNION ALL SELECT format('%s %s %s %s', classid, objid, mode, granted) FROM pg_locks WHERE locktype = 'advisory' ORDER BY 1`), "; ")
}

func (p *pgServer) restart(t testing.TB) {
	t.Helper()
	p.hangUp()
	must(t, p.server.Kill())
	must(t, p.server.Restart(true))
}
