// Package pg keeps locks as advisory locks of a Postgres server.
//
// A connection either holds locks or waits for one, never both. One connection
// holds all locks of a client that are granted at once; what the goroutines
// ask for at the same time goes to the server together. A few more connections
// wait, each for one lock that another client holds, and keep it when they get
// it. Nothing of this depends on how many locks are held.
//
// # URL
//
//	postgres://user:password@host:port,host:port/database?parameters
//
// The scheme may be postgresql too. Of several hosts the primary is used. The
// parameters sslmode, sslrootcert, sslcert, sslkey, sslsni, sslnegotiation,
// channel_binding, require_auth, connect_timeout, application_name and
// target_session_attrs are those of libpq; what is not given comes from the
// usual PG variables of the environment. Ours are
//
//	namespace  the part of every key that sets applications apart, "dlock"
//	schema     where the sequences of tokens are, "public"
//	parked     how many connections may wait, 8
//	slice      how long a wait is one statement, 5s
//	max_locks  how many locks the client may have, 0 for half the lock table
//	pooler     "session" allows a pooler that works by session
//
// # Guarantees
//
// A lock is held for as long as its connection lives. From Postgres 14 on the
// server ends a connection on which it has heard nothing for the TTL, by
// idle_session_timeout; each TTL in use has a connection of its own. An older
// server finds out by TCP keepalives, which a stopped process still answers.
// The end of a process frees its locks at once.
//
// Clients that wait get a lock first come, first served, while no wait is
// longer than the slice. Then the wait ends and begins anew at the end of the
// queue, so that it does not keep vacuum and CREATE INDEX CONCURRENTLY from
// going on. When all connections that may wait do, further requests are told by
// notification when a lock is given back, in no order; one whose holder has
// died they find free within half a minute.
//
// The server looks through all locks of a connection at the end of each
// statement: with thousands of locks held each further one takes longer.
//
// Postgres keeps advisory locks in the memory of one server. A restart or a
// failover frees them all; a holder that is cut off at that moment learns of
// it when its TTL is over, and the next one's token is greater. Poolers that work
// by transaction or statement, and standbys, are refused. Whoever sets
// pooler=session for one that works by transaction has no locks at all.
//
// Tokens come from a sequence and grow across restarts, crashes and promotions. A
// cluster that was restored from a dump, or made by pg_upgrade, begins anew: have
// whatever compares tokens forget those it has seen.
//
// # Wire format
//
// The key of a lock is a bigint: the first 8 bytes, big endian, of the SHA-256
// of namespace, NUL and name. Two names with one key, of which there is no
// hope, would share a lock. In SQL:
//
//	SELECT ('x' || left(encode(sha256('\x646c6f636b00'::bytea || 'name'::bytea), 'hex'), 16))::bit(64)::bigint
//
// A request that waits to be told holds a shared lock on a second key, the
// first one XOR 0x5555555555555555, and listens on the channel dlock_wake.
// Whoever gives back a lock looks whether that key is locked, and if so sends
// the first key, in decimal, as a notification.
//
// The token is the WAL timeline in the upper 12 bits, and a number of the
// sequence dlock_token, which counts in steps of 4096, in the lower 52. The
// numbers up to the next step are the holder's, who may pass the lock on within
// its process, with one of them each time.
//
// From Postgres 15 on dlock_token is not logged, so that a token never waits for
// the disk, and starts anew after a crash. A number with the bit 2^32 is of no
// use: whoever draws one draws a range of 2^32 numbers from the logged sequence
// dlock_token_range, sets dlock_token to its start unless that is past it, and
// draws again. That is so at first, after a crash, and at the end of a range. A
// dlock_token that is logged, as older servers have it, is used as it is.
//
// # Permissions
//
// CONNECT on the database and USAGE and UPDATE on both sequences are enough. The
// first client creates them if it may; otherwise the error of Open says which
// statements an administrator must run. Every connection sets for itself
// idle_session_timeout, lock_timeout, statement_timeout, transaction_timeout,
// synchronous_commit, default_transaction_read_only, client_min_messages,
// tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count,
// tcp_user_timeout and client_connection_check_interval. A wait that is cancelled
// or reaches its slice leaves a line in the server's log.
package pg

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5"
)

// Options configure a Backend. A nil *Options is the same as an empty one.
type Options struct {
	// Namespace is part of every key, so that applications that share a
	// database do not share locks. Empty is "dlock". It holds no NUL.
	Namespace string

	// Schema is where the sequences of tokens are. Empty is "public". All
	// clients of a database must have the same.
	Schema string

	// MaxParked is how many connections may wait for locks that others hold,
	// or hold what they have waited for. Zero means 8.
	MaxParked int

	// Slice is how long a statement that waits may last. A longer wait is
	// made of several. Zero means 5 s.
	Slice time.Duration

	// MaxLocks is how many locks this client may have, those it waits for
	// included. Zero means half of what the server's lock table has room
	// for, by its settings. One more is ErrLockTable.
	MaxLocks int

	// SessionPooler says that the server is reached through a pooler that
	// gives every client a connection of its own for as long as it stays, as
	// PgBouncer does with pool_mode=session. There is no way to check it.
	SessionPooler bool
}

func (o *Options) withDefaults() (Options, error) {
	out := Options{Namespace: "dlock", Schema: "public", MaxParked: 8, Slice: 5 * time.Second}
	if o == nil {
		return out, nil
	}
	if o.Slice > 0 && o.Slice < time.Millisecond || o.Slice.Milliseconds() > math.MaxInt32 {
		return out, backend.Fail(backend.ErrInvalidConfig, errors.New("pg.Options.Slice: want 1ms to 596h"))
	}
	if o.MaxParked < 0 || o.MaxLocks < 0 || o.Slice < 0 || strings.Contains(o.Namespace+o.Schema, "\x00") {
		return out, backend.Fail(backend.ErrInvalidConfig, errors.New("negative number or NUL in pg.Options"))
	}
	set(&out.Namespace, o.Namespace)
	set(&out.Schema, o.Schema)
	set(&out.MaxParked, o.MaxParked)
	set(&out.Slice, o.Slice.Round(time.Millisecond))
	out.MaxLocks, out.SessionPooler = o.MaxLocks, o.SessionPooler
	return out, nil
}

func set[T comparable](field *T, v T) {
	var zero T
	if v != zero {
		*field = v
	}
}

// minTTL is the shortest lease that a busy server can be expected to keep.
const minTTL = 100 * time.Millisecond

// A Backend is one client of a Postgres server.
type Backend struct {
	config      *pgx.ConnConfig
	credentials func(context.Context) (user, password string, err error)
	opts        Options
	sequences   sequences
	key         func(name string) int64 // of the lock
	nap         time.Duration           // of the readers

	room     atomic.Int64 // of the server's lock table
	ctx      context.Context
	stop     context.CancelFunc
	janitor  backend.Janitor
	sessions sync.WaitGroup
	slots    chan struct{} // a message for each connection taken to wait

	mu     sync.Mutex
	closed bool
	places map[int64]*place
	hot    map[int64]int // keys that others were found to hold, see heat
	lines  map[line]*dialing
	idle   []*session // of no line
	live   map[*session]struct{}

	loiterers int // requests in the lobby
}

var (
	_ backend.Backend    = (*Backend)(nil)
	_ backend.Renewer    = (*Backend)(nil)
	_ backend.Downgrader = (*Backend)(nil)
	_ backend.Transferer = (*Backend)(nil)
	_ backend.MinTTLer   = (*Backend)(nil)
)

// New returns a client of the server that cfg describes. It connects once, to
// find out whether the server is good for locks; ctx bounds that. Connections
// are made and closed as they are needed.
func New(ctx context.Context, cfg *pgx.ConnConfig, o *Options) (*Backend, error) {
	b, err := newBackend(cfg, o)
	if err != nil {
		return nil, err
	}
	return b, b.check(ctx)
}

func newBackend(cfg *pgx.ConnConfig, o *Options) (*Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg == nil || cfg.BuildFrontend == nil {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("want a ConnConfig made by pgx.ParseConfig"))
	}
	b := &Backend{
		config:    cfg.Copy(),
		opts:      opts,
		sequences: newSequences(opts.Schema),
		slots:     make(chan struct{}, opts.MaxParked),
		places:    make(map[int64]*place),
		hot:       make(map[int64]int),
		lines:     make(map[line]*dialing),
		live:      make(map[*session]struct{}),
	}
	b.key, b.nap = b.hash, shortNap
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// check connects once and keeps the connection for the first who needs one.
func (b *Backend) check(ctx context.Context) error {
	s, err := b.connect(ctx, line{time.Minute, holding})
	if err != nil {
		b.stop()
		return err
	}
	b.putBack(s)
	return nil
}

func (b *Backend) hash(name string) int64 {
	buf := make([]byte, 0, 256)
	buf = append(append(append(buf, b.opts.Namespace...), 0), name...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// MinTTL implements backend.MinTTLer.
func (b *Backend) MinTTL() time.Duration { return minTTL }

// maxLocks is how many places there may be, 0 if that is not known yet.
func (b *Backend) maxLocks() int {
	if b.opts.MaxLocks > 0 {
		return b.opts.MaxLocks
	}
	return int(b.room.Load() / 2)
}

// Close implements backend.Backend.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.stop()
	for _, p := range b.places {
		p.change()
	}
	b.mu.Unlock()
	for _, s := range b.alive() {
		s.reserve()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, s := range b.alive() {
			s.kill(backend.ErrClosed)
		}
	})
	defer stop()
	err := b.janitor.Close(ctx) // requests that wait are taken back
	b.closeSessions(ctx)
	return err
}

func (b *Backend) alive() []*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.live))
}

// closeSessions has every session give back what it holds, and ends it.
func (b *Backend) closeSessions(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range b.alive() {
		all.Go(func() {
			ctx, cancel := backend.Bound(ctx, min(s.lease(), dialLimit))
			defer cancel()
			if _, err := s.do(ctx, unlockAll, 0); err == nil {
				s.bye()
			}
			s.kill(backend.ErrClosed)
		})
	}
	all.Wait()
	b.sessions.Wait()
}

func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return y == x })
}
