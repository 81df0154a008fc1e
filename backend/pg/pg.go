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
// parameters host, port, options, sslmode, sslrootcert, sslcert, sslkey, sslsni,
// sslnegotiation, channel_binding, require_auth, connect_timeout, application_name
// and target_session_attrs are those of libpq; what is not given, or empty, comes from the
// usual PG variables of the environment. A Unix socket is reached by
// postgres:///database?host=/its/directory. Ours are
//
//	namespace  the part of every key that sets applications apart, "dlock"
//	schema     where the sequences of tokens are, "public"
//	owner      a role that may own them, beside those that are trusted anyway
//	max_conns  how many connections there may be, 16
//	parked     how many of them may wait, 8
//	slice      how long a wait is one statement, 5s
//	max_locks  how many locks the client may have, 0 for half the lock table
//	pooler     "session" allows a pooler that works by session
//
// # TLS
//
// Without sslmode, in the URL, as PGSSLMODE or in the service that PGSERVICE names,
// connections use TLS, or are not made: as with sslmode=require, which keeps others from
// listening and does not know whom it talks to. The mode prefer of a service is as none. A server that is not known does not get the password as it is, unless
// require_auth=password says so. Use sslmode=verify-full with sslrootcert, and require_auth=scram-sha-256,
// wherever the network is not your own. To a Unix socket or a loopback address TLS is
// used where the server has it, and the password is not sent in plain text to one that
// has not. sslmode=disable is the word for no TLS at all.
//
// # Connections
//
// A client has one connection for each lease that its holds have, one to listen where
// that is needed, one for each wait, and one for each lock that it has waited for until
// that is given back, at most max_conns in all. Leases are TTLs rounded up by a quarter
// at most: four from each TTL to its double. A TTL is 100 ms at least. A connection
// that nobody uses takes the lease that is wanted next, and is closed after half of its
// own. When there are max_conns, holds share connections with a lease that is longer,
// or as long as there is, and are renewed as that demands; and who waits listens.
//
// # Guarantees
//
// A lock is held for as long as its connection lives. From Postgres 14 on the
// server ends a connection on which it has heard nothing for its lease, by
// idle_session_timeout. An older server finds out by TCP keepalives, which a stopped
// process still answers. The end of a process frees its locks at once.
//
// So does the end of a connection, whatever ends it. When something in the network
// resets it, the server may learn of that before the client: somebody else may get the
// lock 1 to 15 ms before the holder is told of its loss. There is no way around that
// where the lock is the connection; their tokens are in order.
//
// Clients that wait get a lock first come, first served. Readers of one client share one
// place in the queue, because a place takes a connection: who comes later goes with the
// first, before a writer that came between. One whose TTL has another lease asks when these
// have the lock, behind those who queue by then. A wait is made of slices: a
// statement that waits keeps vacuum and CREATE INDEX CONCURRENTLY from going on. Who has
// waited for longer than a slice has a claim, before which nobody goes who came later,
// reader or writer. When all connections that may wait do, further requests are told by
// notification when a lock is given back, in no order until they have waited for a
// slice; one whose holder has died they find free within half a minute.
//
// The server looks through all locks of a connection at the end of each
// statement: with thousands of locks held each further one takes longer.
//
// Postgres keeps advisory locks in the memory of one server. A restart or a
// failover frees them all; a holder that is cut off at that moment learns of
// it when its TTL is over, and the next one's token is greater. Poolers that work
// by transaction or statement, standbys, and servers that accept advisory locks and keep
// none are refused. Whoever sets pooler=session for a pooler that works by transaction
// has no locks at all.
//
// Tokens come from a sequence that follows the server's clock, and grow across
// restarts, crashes, promotions, dumps, pg_upgrade, and snapshots that are put back. They
// fit a signed bigint. They do not grow when two things come together: the server
// forgets, and its clock is behind that of the server before by more than has passed
// since a client last connected there. After the crash of a server that still has its
// disk, that is two minutes more. Nor do they where a dump of the last minute is restored
// while clients are connected.
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
// the first key, in decimal, as a notification. A notification grants nothing: who hears
// it asks for the lock.
//
// Who has waited for a third of its TTL also holds a shared lock on the first key XOR
// 0x0F0F0F0F0F0F0F0F, and one on 7236281174072975726. Whoever holds the lock looks for them
// when it renews: that is how Wanted comes about.
//
// A claim is a shared lock on a third key, the first one XOR 0x3333333333333333, and
// one on two integers: the upper half of the first key, and when the request came, by
// the server's clock in hundredths of a second, modulo 2^31, times 2, plus 1 for a
// writer. Whoever gets a lock looks whether the third key is locked, and if so whether
// a claim comes before; it gives the lock back then.
//
// A token is a number of the sequence dlock_fence, which counts in steps of 4096. The
// numbers up to the next step are the holder's, who may pass the lock on within its
// process, with one of them each time. Every connection begins by setting the sequence
// to the seconds since 2000-01-01 UTC, times 2^32, unless it is past that. Who draws a
// number that is more than a minute behind does so again, and draws another. From Postgres
// 15 on dlock_fence is not logged, so that a token waits for the disk once a minute at
// most, and the sequence dlock_fence_floor remembers, to the minute, how far it was.
//
// # Permissions
//
// Who can do what to a lock, and how to set a server up so that it holds, is told in
// docs/security.md.
//
// CONNECT on the database and USAGE and UPDATE on both sequences are enough. The
// first client creates them if it may; otherwise the error of Open says which
// statements an administrator must run. A role with these rights can set tokens back,
// and any role that may connect can take a lock by its key: give locks a database of
// their own where roles do not trust one another. That also keeps waits from holding up
// vacuum elsewhere.
//
// Every connection sets for itself search_path, idle_session_timeout, lock_timeout,
// statement_timeout, transaction_timeout, synchronous_commit,
// default_transaction_read_only, client_min_messages, tcp_keepalives_idle,
// tcp_keepalives_interval, tcp_keepalives_count, tcp_user_timeout and
// client_connection_check_interval. A wait that is cancelled or reaches its slice
// leaves a line in the server's log.
package pg

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
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

	// MaxParked is how many connections may wait for locks that others hold at
	// once, at most MaxConns. Zero means 8.
	MaxParked int

	// MaxConns is how many connections there may be: those that wait, those that
	// have a lock which they have waited for, one for each lease that is in use,
	// and one that listens. Zero means 16, and the least is 2. With all in use
	// further requests share those that are there, and listen instead of waiting.
	MaxConns int

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

	// Owner names a role that may own the sequences of tokens. Without it they
	// must belong to this client's role, to one that this is a member of, to a
	// superuser, or to the owner of the database or of the schema: an owner can
	// start a sequence anew.
	Owner string

	// BeforeConnect, if not nil, may change the configuration of each connection
	// before it is made, such as a password that is valid for a while only. It may
	// be called concurrently. Its error is ErrAuth.
	BeforeConnect func(ctx context.Context, cfg *pgx.ConnConfig) error
}

// defaults stand for what Options leave zero.
var defaults = Options{Namespace: "dlock", Schema: "public", MaxParked: 8, MaxConns: 16, Slice: 5 * time.Second}

const (
	minConns  = 2
	wantSlice = "want 1ms to 596h"
)

// validSlice reports whether the server can count d, in milliseconds.
func validSlice(d time.Duration) bool {
	return d >= time.Millisecond && d.Milliseconds() <= math.MaxInt32
}

func (o *Options) withDefaults() (Options, error) {
	if o == nil {
		return defaults, nil
	}
	out := *o
	if o.Slice != 0 && !validSlice(o.Slice) {
		return out, backend.Fail(backend.ErrInvalidConfig, errors.New("pg.Options.Slice: "+wantSlice))
	}
	if min(o.MaxParked, o.MaxLocks, o.MaxConns) < 0 || strings.Contains(o.Namespace+o.Schema+o.Owner, "\x00") {
		return out, backend.Fail(backend.ErrInvalidConfig, errors.New("negative number or NUL in pg.Options"))
	}
	out.Namespace = cmp.Or(o.Namespace, defaults.Namespace)
	out.Schema = cmp.Or(o.Schema, defaults.Schema)
	out.MaxParked = cmp.Or(o.MaxParked, defaults.MaxParked)
	out.MaxConns = cmp.Or(o.MaxConns, defaults.MaxConns)
	out.Slice = cmp.Or(o.Slice.Round(time.Millisecond), defaults.Slice)
	switch {
	case out.MaxConns < minConns:
		return out, backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("pg.Options.MaxConns: want %d or more", minConns))
	case o.MaxParked > out.MaxConns:
		return out, backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("pg.Options.MaxParked: want at most MaxConns, %d", out.MaxConns))
	}
	return out, nil
}

// minTTL is the shortest lease that a busy server can be expected to keep.
const minTTL = 100 * time.Millisecond

// A Backend is one client of a Postgres server.
type Backend struct {
	config      *pgx.ConnConfig
	opts        Options
	inspectOnly bool // nothing is made on the server
	sequences   sequences
	key         func(name string) int64 // of the lock
	trip        backend.RoundTrip       // of exchanges in which nothing waits for a lock

	lockTableSize atomic.Int64 // of the server's lock table
	ctx           context.Context
	stop          context.CancelFunc
	janitor       backend.Janitor
	sessions      sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	locks     map[int64]*localLock
	contended map[int64]int                    // keys that others were found to hold, see isContended
	shared    map[time.Duration]*sharedSession // by lease
	idle      []*session                       // that nobody uses, and that are not shared
	live      map[*session]struct{}

	conns      int        // that there are, or are being made
	slotsTaken int        // requests that have room in the server's queue
	listeners  []*attempt // that have none, in the order in which they came
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.MinTTLer      = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// New returns a client of the server that cfg describes. It connects once, to
// find out whether the server is good for locks; ctx bounds that. Connections
// are made and closed as they are needed.
func New(ctx context.Context, cfg *pgx.ConnConfig, o *Options) (*Backend, error) {
	if ctx == nil {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("nil context"))
	}
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
		locks:     make(map[int64]*localLock),
		contended: make(map[int64]int),
		shared:    make(map[time.Duration]*sharedSession),
		live:      make(map[*session]struct{}),
	}
	b.key = b.hash
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// check connects once and keeps the connection for the first who needs one.
func (b *Backend) check(ctx context.Context) error {
	ctx, cancel := backend.BoundCause(ctx, backend.FirstAnswer, errNoAnswer)
	defer cancel()
	if b.inspectOnly {
		_, err := b.readVersion(ctx)
		if err != nil {
			b.stop()
		}
		return err
	}
	b.conns++
	s, err := b.connect(ctx, time.Minute)
	if err != nil {
		b.stop()
		return err
	}
	if err := checkLocks(ctx, s); err != nil {
		return errors.Join(err, b.Close(ctx))
	}
	b.stopUsing(s)
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

// maxLocks is how many locks there may be, 0 if that is not known yet.
func (b *Backend) maxLocks() int {
	if b.opts.MaxLocks > 0 {
		return b.opts.MaxLocks
	}
	return int(b.lockTableSize.Load() / 2)
}

// Close implements backend.Backend. On a server that does not answer it returns after 10 s.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.stop()
	for _, l := range b.locks {
		l.change()
	}
	b.mu.Unlock()
	ctx, cancel := backend.Bound(ctx, dialLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for _, s := range b.alive() {
			s.kill(backend.ErrClosed)
		}
	})
	defer stop()
	_ = b.janitor.Close(ctx) // requests are taken back; those that are not end with their sessions
	b.closeSessions(ctx)
	return nil
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
			ctx, cancel := backend.Bound(ctx, s.lease())
			defer cancel()
			if _, err := s.do(ctx, unlockAll, 0); err == nil {
				s.terminate()
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
