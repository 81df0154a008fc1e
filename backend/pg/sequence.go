package pg

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The numbers of tokens stand in the low bits, the timeline of the WAL above: a
// standby that is promoted may not have seen the latest of them.
//
// They come from a sequence. One that is logged waits for the disk at each 32nd
// number. Where the server can do without, the sequence is not logged, and
// starts anew after a crash. It then gives numbers that nobody may use: those
// with the bit of odd ranges. Whoever gets one has it set to an even range,
// drawn from a second sequence, which is logged, so that no range is drawn twice.
// The end of an even range leads to an odd one, too.
const (
	sequenceName = "dlock_token"
	rangesName   = "dlock_token_range"

	numberBits = 52
	numberStep = 4096           // between numbers: those up to the next are the holder's
	rangeSize  = int64(1) << 32 // so many numbers follow each other
	rangeStep  = 2 * rangeSize  // between even ranges
	maxNumber  = 1<<numberBits - 1
)

// unloggedVersion is the first one with sequences that are not logged.
const unloggedVersion = 150000

// reserving is the lock, in the key space of two integers, under which a range is
// drawn and the sequence set. Every range is set again once it is drawn: of the
// numbers that are only drawn each 32nd is written to the log.
const reserving = "pg_advisory_xact_lock(1684827243, 0)"

// A keeper says what keeps numbers from being given out twice.
type keeper uint8

const (
	absent   keeper = iota // there is no sequence yet
	logged                 // the sequence itself
	reserved               // the sequence of ranges
)

// sequences are the names of both, in the forms that statements need.
type sequences struct {
	replace                 *strings.Replacer
	numbersPath, rangesPath string
}

func newSequences(schema string) sequences {
	path := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	q := sequences{numbersPath: path(sequenceName), rangesPath: path(rangesName)}
	numbers, ranges := quoteLiteral(q.numbersPath), quoteLiteral(q.rangesPath)
	q.replace = strings.NewReplacer(
		"NUMBERS_PATH", q.numbersPath, "NUMBERS_TEXT", numbers, "NUMBERS", numbers+"::regclass",
		"RANGES_PATH", q.rangesPath, "RANGES_TEXT", ranges, "RANGES", ranges+"::regclass")
	return q
}

// in is an expression or statement with the sequences in it.
func (q *sequences) in(sql string) string { return q.replace.Replace(sql) }

// create makes what is missing, by one transaction.
func (q *sequences) create(version int64) string {
	if version < unloggedVersion {
		return q.in(fmt.Sprintf("CREATE SEQUENCE IF NOT EXISTS NUMBERS_PATH INCREMENT %d MINVALUE %d MAXVALUE %d CACHE 1 NO CYCLE",
			numberStep, numberStep, maxNumber))
	}
	return q.in(fmt.Sprintf("CREATE SEQUENCE IF NOT EXISTS RANGES_PATH INCREMENT %d MINVALUE %d MAXVALUE %d CACHE 1 NO CYCLE; "+
		"CREATE UNLOGGED SEQUENCE IF NOT EXISTS NUMBERS_PATH INCREMENT %d MINVALUE %d MAXVALUE %d CACHE 1 NO CYCLE",
		rangeStep, rangeStep, maxNumber, numberStep, rangeSize, maxNumber))
}

// grant is what a role needs to use them.
func (q *sequences) grant(both bool) string {
	if both {
		return q.in("GRANT USAGE, UPDATE ON SEQUENCE NUMBERS_PATH, RANGES_PATH TO this role")
	}
	return q.in("GRANT USAGE ON SEQUENCE NUMBERS_PATH TO this role")
}

// prepareSequence makes the sequences if they are not there, and checks them.
func (b *Backend) prepareSequence(ctx context.Context, conn *pgconn.PgConn, version int64) (keeper, error) {
	found, err := b.checkSequence(ctx, conn)
	if found != absent || err != nil {
		return found, err
	}
	create := b.sequences.create(version)
	failed := conn.Exec(ctx, create).Close()
	// Even then they may be there: somebody else has made them meanwhile.
	found, err = b.checkSequence(ctx, conn)
	switch {
	case found != absent || err != nil:
	case kinds[codeOf(failed)] == backend.ErrInvalidConfig:
		err = classify(failed)
	default:
		err = backend.Fail(backend.ErrAuth, fmt.Errorf("have an administrator run %s; then %s: %w", create, b.sequences.grant(version >= unloggedVersion), failed))
	}
	return found, err
}

// checkSequence says what the server has, and what is wrong with it. A sequence
// that caches numbers in each session gives them out in no order.
func (b *Backend) checkSequence(ctx context.Context, conn *pgconn.PgConn) (keeper, error) {
	q := &b.sequences
	values, err := queryInts(ctx, conn, q.in(sequenceFacts))
	if err != nil {
		return absent, err
	}
	there, good, isLogged, rangesGood := values[0] > 0, values[1] > 0, values[2] > 0, values[3] > 0
	mayDraw, mayReserve := values[4] > 0, values[5] == 2
	switch {
	case !there:
		return absent, nil
	case !good:
		return absent, backend.Fail(backend.ErrConflict, fmt.Errorf("%s is not a sequence of tokens", q.numbersPath))
	case !isLogged && !rangesGood:
		return absent, backend.Fail(backend.ErrConflict, fmt.Errorf("%s, for the ranges of %s, is missing or no such sequence", q.rangesPath, q.numbersPath))
	case !mayDraw, !isLogged && !mayReserve:
		return absent, backend.Fail(backend.ErrAuth, fmt.Errorf("have an administrator run %s", q.grant(!isLogged)))
	case isLogged:
		return logged, nil
	}
	return reserved, nil
}

// sequenceFacts is asked for numbers that are 0 for no: whether the sequence is
// there, is what create makes, and is logged; whether that of ranges is what
// create makes; whether this role may draw from the first; and of how many of the
// two it may do all that a new range needs.
var sequenceFacts = fmt.Sprintf(`SELECT count(*) FILTER (WHERE mine),
	count(*) FILTER (WHERE mine AND plain AND seqincrement = %d AND (is_logged OR seqmin = %d)),
	count(*) FILTER (WHERE mine AND is_logged),
	count(*) FILTER (WHERE NOT mine AND plain AND seqincrement = %d AND is_logged),
	count(*) FILTER (WHERE mine AND has_sequence_privilege(seqrelid, 'USAGE')),
	count(*) FILTER (WHERE has_sequence_privilege(seqrelid, 'USAGE') AND has_sequence_privilege(seqrelid, 'UPDATE'))
	FROM (SELECT *, seqrelid = to_regclass(NUMBERS_TEXT) AS mine, seqcache = 1 AND NOT seqcycle AS plain, relpersistence = 'p' AS is_logged
		FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid
		WHERE seqrelid IN (to_regclass(NUMBERS_TEXT), to_regclass(RANGES_TEXT))) found`, numberStep, rangeSize, rangeStep)

// isSpent reports whether n must not be used, in a sequence that is not logged.
func isSpent(n int64) bool { return n&rangeSize != 0 }

// renumber gives c, which has drawn a number that must not be used while it got its
// lock, another number.
func (s *session) renumber(c *call) {
	for s.ranges && c.err == nil && isSpent(c.value) {
		first := s.run(c, reserve, 0)
		s.run(c, advance, first)
		c.value = s.run(c, draw, 0)
	}
}

// run returns what o does. Its error is that of c, which may have one already.
func (s *session) run(c *call, o op, arg int64) int64 {
	if c.err != nil {
		return 0
	}
	d := newCall(o, arg)
	defer calls.Put(d)
	s.start(d)
	<-d.done
	c.err = d.err
	return d.value
}
