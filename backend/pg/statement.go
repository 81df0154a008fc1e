package pg

import (
	"encoding/binary"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// An op is a statement that a session runs. Each takes one bigint, a key if
// not said otherwise, and returns one, so that all travel alike.
type op uint8

const (
	tryExclusive    op = iota // token, or 0 if the lock is held
	tryShared                 // the same
	unlockExclusive           // 1, or 0 if the session did not hold it
	unlockShared              // the same
	lockExclusive             // token; waits
	lockShared                // token; waits
	downgrade                 // 1, or 0 if the session did not hold it
	probe                     // 1 if a shared lock would be granted now
	ping                      // 1 if this is the backend with that pid, on a primary
	setTTL                    // 1; takes milliseconds
	enlist                    // 1; says that somebody without a place in the queue waits
	delist                    // 1; takes that back
	unlockAll                 // 1; takes anything
	draw                      // a number for a token; takes anything
	reserve                   // the first number of a range, which is on the disk then; takes anything
	advance                   // takes a number below which none is drawn from now on
	ops
)

// wakeChannel is where the keys of locks are told that have become free and
// that somebody waits for who is not in the server's queue.
const wakeChannel = "dlock_wake"

// Who waits so has a shared lock on a second key, made of the first. told is
// the rest of a CASE that has given a lock back: it sends a notification if
// there are any such. Otherwise it costs no more than a look at that key.
const (
	second = "K # 6148914691236517205"
	told   = " WHEN pg_try_advisory_xact_lock(" + second + ") THEN 1" +
		" WHEN pg_notify('" + wakeChannel + "', K::text) IS NULL THEN 0 ELSE 1 END::int8"
	unlockExpression       = "CASE WHEN NOT pg_advisory_unlock(K) THEN 0" + told
	unlockSharedExpression = "CASE WHEN NOT pg_advisory_unlock_shared(K) THEN 0" + told
)

// expressions holds what each op selects; K is its argument, NUMBERS and RANGES
// are the sequences. CASE is what makes an order of evaluation certain.
var expressions = [ops]string{
	tryExclusive:    "CASE WHEN pg_try_advisory_lock(K) THEN nextval(NUMBERS) ELSE 0 END",
	tryShared:       "CASE WHEN pg_try_advisory_lock_shared(K) THEN nextval(NUMBERS) ELSE 0 END",
	unlockExclusive: unlockExpression,
	unlockShared:    unlockSharedExpression,
	lockExclusive:   "CASE WHEN pg_advisory_lock(K) IS NULL THEN 0 ELSE nextval(NUMBERS) END",
	lockShared:      "CASE WHEN pg_advisory_lock_shared(K) IS NULL THEN 0 ELSE nextval(NUMBERS) END",
	downgrade:       "CASE WHEN pg_advisory_lock_shared(K) IS NULL THEN 0 WHEN NOT pg_advisory_unlock(K) THEN 0" + told,
	probe:           "pg_try_advisory_xact_lock_shared(K)::int::int8",
	ping:            "(pg_backend_pid() = K AND NOT pg_is_in_recovery())::int::int8",
	setTTL:          "(set_config('idle_session_timeout', K::text, false) IS NOT NULL)::int::int8",
	enlist:          "(pg_advisory_lock_shared(" + second + ") IS NOT NULL)::int::int8",
	delist:          "pg_advisory_unlock_shared(" + second + ")::int::int8",
	unlockAll:       "(pg_advisory_unlock_all() IS NOT NULL)::int::int8 + 0 * K",
	draw:            "nextval(NUMBERS) + 0 * K",
	reserve:         "CASE WHEN " + reserving + " IS NULL THEN 0 ELSE setval(RANGES, nextval(RANGES)) + 0 * K END",
	advance: "CASE WHEN " + reserving + " IS NULL THEN 0" +
		" WHEN coalesce(pg_sequence_last_value(NUMBERS), 0) < K THEN setval(NUMBERS, K) ELSE K END",
}

// groups holds what is run instead for many keys at once. The tries draw one
// token for all of them, last, when every lock is held: tokens are compared
// only within one name.
var groups = [ops]string{
	tryExclusive:    "SELECT pg_try_advisory_lock(k)::int::int8 FROM unnest($1::int8[]) k UNION ALL SELECT nextval(NUMBERS)",
	tryShared:       "SELECT pg_try_advisory_lock_shared(k)::int::int8 FROM unnest($1::int8[]) k UNION ALL SELECT nextval(NUMBERS)",
	unlockExclusive: "SELECT " + unlockExpression + " FROM unnest($1::int8[]) K",
	unlockShared:    "SELECT " + unlockSharedExpression + " FROM unnest($1::int8[]) K",
}

// undo is the op that gives back what o may have taken, or ops if there is
// nothing to give back.
func (o op) undo() op {
	switch o {
	case tryExclusive, lockExclusive:
		return unlockExclusive
	case tryShared, lockShared:
		return unlockShared
	}
	return ops
}

// goesAlone reports whether o is a transaction by itself.
func (o op) goesAlone() bool { return o == setTTL || o == reserve }

func tryOp(shared bool) op    { return pick(shared, tryShared, tryExclusive) }
func unlockOp(shared bool) op { return pick(shared, unlockShared, unlockExclusive) }
func lockOp(shared bool) op   { return pick(shared, lockShared, lockExclusive) }

func pick(shared bool, yes, no op) op {
	if shared {
		return yes
	}
	return no
}

// A form is an op as it is prepared: for one argument, or for many.
type form struct {
	op   op
	many bool
}

func (f form) name() string {
	if f.many {
		return names[f.op] + "s"
	}
	return names[f.op]
}

// names holds what each op is prepared as.
var names = func() (list [ops]string) {
	for o := range ops {
		list[o] = "dlock_" + string('a'+rune(o))
	}
	return list
}()

func (f form) sql(q *sequences) string {
	text := "SELECT " + strings.ReplaceAll(expressions[f.op], "K", "$1")
	if f.many {
		text = groups[f.op]
	}
	return q.in(text)
}

// The types of arguments, by their numbers in every Postgres.
const (
	typeInt8      = 20
	typeInt8Array = 1016
)

func (f form) argument() uint32 {
	if f.many {
		return typeInt8Array
	}
	return typeInt8
}

// A statement is one execution: of one call, or of many of the same op.
type statement struct {
	form
	calls []*call
	rows  int
}

// encode appends the argument in the binary format.
func (st *statement) encode(buf []byte) []byte {
	if !st.many {
		return binary.BigEndian.AppendUint64(buf, uint64(st.calls[0].arg))
	}
	const dimensions, noNulls, lowerBound, size = 1, 0, 1, 8
	for _, v := range []uint32{dimensions, noNulls, typeInt8, uint32(len(st.calls)), lowerBound} {
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	for _, c := range st.calls {
		buf = binary.BigEndian.AppendUint32(buf, size)
		buf = binary.BigEndian.AppendUint64(buf, uint64(c.arg))
	}
	return buf
}

// row takes one row of the result. The row after the last call's is the token
// of all calls that got their lock.
func (st *statement) row(m *pgproto3.DataRow) bool {
	if len(m.Values) != 1 || len(m.Values[0]) != 8 || st.rows > len(st.calls) {
		return false
	}
	value := int64(binary.BigEndian.Uint64(m.Values[0]))
	if st.rows < len(st.calls) {
		st.calls[st.rows].value = value
	} else {
		for _, c := range st.calls {
			c.value *= value
		}
	}
	st.rows++
	return true
}
