package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tokens are the numbers of a sequence, which every connection first moves a step beyond
// the time of the server's clock, unless it is there already: the seconds since the year 2000,
// 31 bits, and 32 bits of their fraction. That is room for 2^20 numbers a second.
// Nobody draws that many, so that the sequence does not get ahead of the clock, and
// what takes it back also ends all connections: a crash, a promotion, a snapshot, an
// upgrade. The numbers drawn afterwards are greater than all from before. A dump may be
// restored beneath connections that go on. So who draws a number that is more than a
// minute behind the clock moves the sequence again, and draws another.
//
// A sequence that is logged waits for the disk at each 32nd number. Where the server
// can do without, this one is not logged, and starts anew after a crash. A second
// sequence, the floor, which is logged, is set to the clock as well, at most once a
// minute. It counts when the clock has been set back: after a crash the numbers begin
// two minutes above it.
const (
	numbersName = "dlock_fence"
	floorName   = "dlock_fence_floor"

	numberStep        = 4096 // between numbers: those up to the next are the holder's
	secondSize  int64 = 1 << 32
	floorStep         = 60 * secondSize  // that the floor may be behind
	behindStep        = 60 * secondSize  // that a number may be behind the clock
	raiseStep         = secondSize / 64  // 16 ms, and 2^14 numbers: more than others draw while a session moves the sequence
	maxUnlogged       = 256 * numberStep // more than are drawn from a logged sequence before it is written
)

// unloggedVersion is the first one with sequences that are not logged.
const unloggedVersion = 150000

// numbering is the lock, in the key space of two integers, under which the sequences
// are set.
const numbering = "pg_advisory_xact_lock(1684827243, 0)"

// A durability says what keeps numbers from being given out twice.
type durability uint8

const (
	absent durability = iota // there is no sequence yet
	logged                   // the clock and the sequence itself
	floor                    // the clock and the second sequence
)

// sequences are the names of both, in the forms that statements need.
type sequences struct {
	replace                *strings.Replacer
	numbersPath, floorPath string
}

func newSequences(schema string) sequences {
	path := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	q := sequences{numbersPath: path(numbersName), floorPath: path(floorName)}
	numbers, floor := quoteLiteral(q.numbersPath), quoteLiteral(q.floorPath)
	q.replace = strings.NewReplacer(
		"NUMBERS_PATH", q.numbersPath, "NUMBERS_TEXT", numbers, "NUMBERS", numbers+"::regclass",
		"FLOOR_PATH", q.floorPath, "FLOOR_TEXT", floor, "FLOOR", floor+"::regclass",
		"SCHEMA_TEXT", quoteLiteral(schema),
		"CLOCK", "((extract(epoch FROM clock_timestamp()) - 946684800) * 4294967296)::int8",
		"LAST", "coalesce(pg_sequence_last_value("+numbers+"::regclass), 0)",
		"BOUND", "coalesce(pg_sequence_last_value("+floor+"::regclass), 0)")
	return q
}

// in is an expression or statement with the sequences in it.
func (q *sequences) in(sql string) string { return q.replace.Replace(sql) }

// create makes what is missing, by one transaction.
func (q *sequences) create(version int64) string {
	const numbers = "SEQUENCE IF NOT EXISTS NUMBERS_PATH INCREMENT %d MINVALUE %[1]d CACHE 1 NO CYCLE"
	if version < unloggedVersion {
		return q.in(fmt.Sprintf("CREATE "+numbers, numberStep))
	}
	return q.in(fmt.Sprintf("CREATE SEQUENCE IF NOT EXISTS FLOOR_PATH CACHE 1 NO CYCLE; CREATE UNLOGGED "+numbers, numberStep))
}

// grant is what a role needs to use them.
func (q *sequences) grant(both bool) string {
	if both {
		return q.in("GRANT USAGE, UPDATE ON SEQUENCE NUMBERS_PATH, FLOOR_PATH TO this role")
	}
	return q.in("GRANT USAGE, UPDATE ON SEQUENCE NUMBERS_PATH TO this role")
}

// raise is what to select in order to move the floor, where there is one, and then the
// sequence to the clock. Each is a transaction: the floor is on the disk before a number
// above it is drawn. The second tells where the sequence is then. Others draw numbers meanwhile, and
// whoever moves the sequence does not see the last of them. So that none is drawn again it goes a step
// beyond the clock, and is left alone where it is past that, as after a crash; a logged one goes on by
// as many numbers as may not be on the disk.
func raise(kept durability) (floor, numbers string) {
	const locked = "CASE WHEN " + numbering + " IS NULL THEN 0 "
	if kept == logged {
		return "0::int8", fmt.Sprintf(locked+"ELSE setval(NUMBERS, greatest(CLOCK, LAST + %d, %d)) END", maxUnlogged, numberStep)
	}
	floor = fmt.Sprintf(locked+"WHEN LAST = 0 THEN setval(FLOOR, greatest(CLOCK, BOUND + 2 * %d::int8))"+
		" WHEN greatest(CLOCK, LAST) < BOUND + %[1]d THEN 0 ELSE setval(FLOOR, greatest(CLOCK, LAST)) END", floorStep)
	numbers = fmt.Sprintf(locked+"WHEN LAST >= greatest(CLOCK, BOUND, %d) THEN LAST"+
		" ELSE setval(NUMBERS, greatest(CLOCK, BOUND, %[1]d) + %d) END", numberStep, raiseStep)
	return floor, numbers
}

// isBehind reports whether the number n, just drawn, is more than a minute behind the
// server's clock, as far as the session can tell.
func (s *session) isBehind(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	elapsed := time.Since(s.raisedAt).Milliseconds() * (secondSize / 1000)
	return n > 0 && n < s.raised+elapsed-behindStep
}

// drawAnew draws another number for the lock that c has got with one that is behind the
// clock. It moves the sequences to the clock, unless that has been done since.
func (s *session) drawAnew(c *call) {
	s.raising.Lock()
	defer s.raising.Unlock()
	s.mu.Lock()
	done := s.raisedAt.After(c.sent)
	s.mu.Unlock()
	if !done {
		c.err = s.raise()
	}
	if c.err == nil {
		c.value, c.err = s.run(drawToken, c.arg, 0)
	}
}

func (s *session) raise() error {
	at := time.Now()
	if _, err := s.run(raiseFloor, 0, 0); err != nil {
		return err
	}
	n, err := s.run(raiseNumbers, 0, 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raised, s.raisedAt = n, at
	return nil
}

// prepareSequence makes the sequences if found says that they are not there. A client that
// inspects only takes that back.
func (b *Backend) prepareSequence(ctx context.Context, conn *pgconn.PgConn, found []int64, version int64) (durability, error) {
	kept, err := b.checkSequence(found)
	if kept != absent || err != nil {
		return kept, err
	}
	create := b.sequences.create(version)
	if b.inspectOnly {
		if failed := conn.Exec(ctx, "BEGIN; "+create+"; ROLLBACK").Close(); failed != nil {
			return absent, b.cannotMake(create, version, failed)
		}
		return absent, backend.Fail(backend.ErrUnsupported, errNotMade)
	}
	failed := conn.Exec(ctx, create).Close()
	// Even then they may be there: somebody else has made them meanwhile.
	results, err := pipeline(ctx, conn, []step{{sql: b.sequenceFacts()}})
	if err != nil {
		return absent, err
	}
	if found, err = ints(results[0]); err != nil {
		return absent, err
	}
	kept, err = b.checkSequence(found)
	if kept == absent && err == nil {
		err = b.cannotMake(create, version, failed)
	}
	return kept, err
}

// cannotMake says what to do about sequences that could not be made.
func (b *Backend) cannotMake(create string, version int64, failed error) error {
	if kinds[codeOf(failed)] == backend.ErrInvalidConfig {
		return classify(failed)
	}
	return backend.Fail(backend.ErrAuth, fmt.Errorf("have an administrator run %s; then %s: %w", create, b.sequences.grant(version >= unloggedVersion), failed))
}

// checkSequence says what the server has, and what is wrong with it. A sequence
// that caches numbers in each session gives them out in no order, and the owner of one
// may start it anew.
func (b *Backend) checkSequence(found []int64) (durability, error) {
	q := &b.sequences
	there, good, isLogged, floorGood := found[0] > 0, found[1] > 0, found[2] > 0, found[3] > 0
	mayDraw, mayBoth, foreign := found[4] > 0, found[5] == 2, found[6] > 0
	switch {
	case !there:
		return absent, nil
	case !good:
		return absent, backend.Fail(backend.ErrConflict, fmt.Errorf("%s is not a sequence of tokens", q.numbersPath))
	case !isLogged && !floorGood:
		return absent, backend.Fail(backend.ErrConflict, fmt.Errorf("%s, the floor of %s, is missing or no such sequence", q.floorPath, q.numbersPath))
	case foreign:
		return absent, backend.Fail(backend.ErrConflict, fmt.Errorf("%s or %s belongs to a role that this one has no reason to trust: "+
			"have a superuser or the owner of the database own it, or name the role by owner", q.numbersPath, q.floorPath))
	case !mayDraw, !isLogged && !mayBoth:
		return absent, backend.Fail(backend.ErrAuth, fmt.Errorf("have an administrator run %s", q.grant(!isLogged)))
	case isLogged:
		return logged, nil
	}
	return floor, nil
}

// sequenceFacts asks for numbers that are 0 for no: whether the sequence is there, is
// what create makes, and is logged; whether the floor is what create makes; whether
// this role may draw from and set the first; of how many of the two it may do so; and
// how many belong to somebody else than this role, one that it is a member of, a
// superuser, the owner of the database or of the schema, or Options.Owner. A superuser
// is a member of nothing here, as it would be of all.
func (b *Backend) sequenceFacts() string {
	return b.sequences.in(fmt.Sprintf(`SELECT count(*) FILTER (WHERE mine),
	count(*) FILTER (WHERE mine AND plain AND seqincrement = %d),
	count(*) FILTER (WHERE mine AND is_logged),
	count(*) FILTER (WHERE NOT mine AND plain AND seqincrement = 1 AND is_logged),
	count(*) FILTER (WHERE mine AND usable),
	count(*) FILTER (WHERE usable),
	count(*) FILTER (WHERE NOT trusted)
	FROM (SELECT *, seqrelid = to_regclass(NUMBERS_TEXT) AS mine, seqcache = 1 AND NOT seqcycle AND seqmax = 9223372036854775807 AS plain,
			relpersistence = 'p' AS is_logged,
			has_sequence_privilege(seqrelid, 'USAGE') AND has_sequence_privilege(seqrelid, 'UPDATE') AS usable,
			owner.rolsuper OR owner.rolname IN (current_user, %s) OR relowner IN (
				SELECT datdba FROM pg_database WHERE datname = current_database()
				UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = SCHEMA_TEXT)
			OR NOT me.rolsuper AND pg_has_role(relowner, 'USAGE') AS trusted
		FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid JOIN pg_roles owner ON owner.oid = relowner
			JOIN pg_roles me ON me.rolname = current_user
		WHERE seqrelid IN (to_regclass(NUMBERS_TEXT), to_regclass(FLOOR_TEXT))) found`, numberStep, quoteLiteral(b.opts.Owner)))
}
