package pg

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// An op is a statement that a session runs. Each takes a bigint K, a key if not
// said otherwise, and returns one, so that all travel alike. Some take a second
// bigint T.
type op uint8

const (
	tryExclusive    op = iota // token, 0 if the lock is held, or disputed
	tryShared                 // the same
	lockExclusive             // token or disputed; waits
	lockShared                // the same
	unlockExclusive           // 0 if the session did not hold it, 1, or 2 if somebody may listen for its end
	unlockShared              // the same
	dropExclusive             // 1, or 0 if the session did not hold it; says nothing of listeners
	dropShared                // the same
	downgrade                 // 1, or 0 if the session did not hold it
	probe                     // 1 if a shared lock would be granted now, 0, or disputed
	probeHeld                 // 1 if somebody holds the lock, 0 if nobody does or who does has no token yet
	claim                     // a ticket for K with rank T, 0 if there is none just now
	dropClaim                 // 1; gives back the ticket T for K
	olderClaim                // 1 if somebody with a claim to K comes before the ticket or rank T
	drawToken                 // a number for a token; takes anything
	raiseFloor                // moves the floor to the clock; takes anything
	raiseNumbers              // the number to which it has moved the sequence; takes anything
	checkListeners            // 1, or 2 if somebody may listen for the end of a lock
	notify                    // 1; tells them
	addListener               // 1; says that somebody listens
	removeListener            // 1; takes that back
	ping                      // 1 if this is the backend with that pid, on a primary
	setTTL                    // 1; takes milliseconds
	unlockAll                 // 1; takes anything
	want                      // 1, or 0 if that cannot be just now; says that somebody waits for K
	dropWant                  // 1; takes that back
	anyWanted                 // 1, or 2 if somebody waits for some lock; takes anything
	wanted                    // 1, or 2 if somebody waits for K
	countOwn                  // how many locks of K the server says that the session has
	ops
)

// disputed is the answer of an op that has its lock (or may have it, if it is a
// probe), while somebody waits for it who may come before: see claim.go.
const disputed = -1

// wakeChannel is where the keys of locks are told that have become free and
// that somebody waits for who is not in the server's queue.
const wakeChannel = "dlock_wake"

// A lock has three more keys, made of its own. Who listens for its end has the first of them
// shared; who has a claim to it, the second; who has waited for long, the third, and with it
// one that all locks have in common.
const (
	listenMask  = 0x5555555555555555
	listenKey   = "(K # 6148914691236517205)"
	claimKey    = "(K # 3689348814741910323)"
	wantKey     = "(K # 1085102592571150095)"
	anyWantKey  = "7236281174072975726" // "dlockwan"
	nobodyElse  = "pg_try_advisory_xact_lock(" + claimKey + ")"
	ofListeners = " WHEN pg_try_advisory_xact_lock(" + listenKey + ") THEN 1 ELSE 2 END::int8"
)

// expressions holds what each op selects; K and T are its arguments, NUMBERS is
// the sequence. CASE is what makes an order of evaluation certain.
var expressions = [ops]string{
	tryExclusive:    "CASE WHEN NOT pg_try_advisory_lock(K) THEN 0 WHEN " + nobodyElse + " THEN nextval(NUMBERS) ELSE -1 END",
	tryShared:       "CASE WHEN NOT pg_try_advisory_lock_shared(K) THEN 0 WHEN " + nobodyElse + " THEN nextval(NUMBERS) ELSE -1 END",
	lockExclusive:   "CASE WHEN pg_advisory_lock(K) IS NULL THEN 0 WHEN " + nobodyElse + " THEN nextval(NUMBERS) ELSE -1 END",
	lockShared:      "CASE WHEN pg_advisory_lock_shared(K) IS NULL THEN 0 WHEN " + nobodyElse + " THEN nextval(NUMBERS) ELSE -1 END",
	unlockExclusive: "CASE WHEN NOT pg_advisory_unlock(K) THEN 0" + ofListeners,
	unlockShared:    "CASE WHEN NOT pg_advisory_unlock_shared(K) THEN 0" + ofListeners,
	dropExclusive:   "pg_advisory_unlock(K)::int::int8",
	dropShared:      "pg_advisory_unlock_shared(K)::int::int8",
	downgrade:       "CASE WHEN pg_advisory_lock_shared(K) IS NULL THEN 0 ELSE pg_advisory_unlock(K)::int::int8 END",
	probe:           "CASE WHEN NOT pg_try_advisory_xact_lock_shared(K) THEN 0 WHEN " + nobodyElse + " THEN 1 ELSE -1 END::int8",
	probeHeld:       "CASE WHEN pg_try_advisory_xact_lock_shared(K) THEN 0 WHEN pg_try_advisory_xact_lock_shared(" + claimKey + ") THEN 1 ELSE 0 END::int8",
	claim:           claimExpression,
	dropClaim:       dropClaimExpression,
	olderClaim:      olderClaimExpression,
	drawToken:       "nextval(NUMBERS)",
	checkListeners:  "CASE" + ofListeners,
	notify:          "CASE WHEN pg_notify('" + wakeChannel + "', K::text) IS NULL THEN 0 ELSE 1 END::int8",
	addListener:     "(pg_advisory_lock_shared(" + listenKey + ") IS NOT NULL)::int::int8",
	removeListener:  "pg_advisory_unlock_shared(" + listenKey + ")::int::int8",
	ping:            "(pg_backend_pid() = K AND NOT pg_is_in_recovery())::int::int8",
	setTTL: "(set_config('idle_session_timeout', K::text, false) IS NOT NULL" +
		" AND set_config('tcp_user_timeout', K::text, false) IS NOT NULL)::int::int8",
	unlockAll: "(pg_advisory_unlock_all() IS NOT NULL)::int::int8",
	want: "CASE WHEN NOT pg_try_advisory_xact_lock_shared(" + anyWantKey + ") THEN 0 WHEN NOT pg_try_advisory_lock_shared" + wantKey + " THEN 0" +
		" WHEN pg_try_advisory_lock_shared(" + anyWantKey + ") THEN 1 END::int8",
	dropWant:  "(pg_advisory_unlock_shared" + wantKey + " AND pg_advisory_unlock_shared(" + anyWantKey + "))::int::int8",
	anyWanted: "CASE WHEN pg_try_advisory_xact_lock(" + anyWantKey + ") THEN 1 ELSE 2 END::int8",
	wanted:    "CASE WHEN NOT pg_try_advisory_lock" + wantKey + " THEN 2 WHEN pg_advisory_unlock" + wantKey + " THEN 1 END::int8",
	countOwn: "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()" +
		" AND classid = ((K >> 32) & 4294967295)::oid AND objid = (K & 4294967295)::oid)",
}

// A group is what one statement runs for many calls.
type group uint8

const (
	noGroup group = iota
	taking        // tries and unlocks
	looking       // looks for those who wait, which are not to fail with a try
	groups
)

// members are the ops of each group.
var members = [groups][]op{taking: {tryExclusive, tryShared, unlockExclusive, unlockShared}, looking: {wanted}}

// gotLock is the answer of a try in a group that has got its lock. The token is that of the
// group: the last row, when every lock is held.
const gotLock = -2

// sql is the statement of g, of ops and keys. The tries draw one token for all of them: tokens
// are compared only within one name.
func (g group) sql() string {
	var cases strings.Builder
	for _, o := range members[g] {
		fmt.Fprintf(&cases, " WHEN %d THEN %s", o, strings.Replace(expressions[o], "nextval(NUMBERS)", strconv.Itoa(gotLock), 1))
	}
	return fmt.Sprintf("SELECT (CASE o%s END)::int8 FROM unnest($1::int8[], $2::int8[]) AS calls (o, K)"+
		" UNION ALL SELECT CASE WHEN $1 && '{%d, %d}'::int8[] THEN nextval(NUMBERS) ELSE 0 END", &cases, tryExclusive, tryShared)
}

// group is the one of c.
func (c *call) group() group {
	for g, its := range members {
		if !c.single && slices.Contains(its, c.op) {
			return group(g)
		}
	}
	return noGroup
}

// undo is the op that gives back what o may have taken, or ops if there is
// nothing to give back.
func (o op) undo() op {
	switch o {
	case tryExclusive, lockExclusive, unlockExclusive:
		return dropExclusive
	case tryShared, lockShared, unlockShared:
		return dropShared
	}
	return ops
}

// writes reports whether o may wait for the disk.
func (o op) writes() bool { return o == notify || o == raiseFloor || o == raiseNumbers }

// waits reports whether o waits for a lock.
func (o op) waits() bool { return o == lockExclusive || o == lockShared }

// of returns o, which is for writers, or the op behind it, which is the same for readers.
func (o op) of(shared bool) op {
	if shared {
		return o + 1
	}
	return o
}

// name is what o is prepared as.
func (o op) name() string { return "dlock_" + strconv.Itoa(int(o)) }

// name is what g is prepared as.
func (g group) name() string { return "dlock_group_" + strconv.Itoa(int(g)) }

// The types of arguments, by their numbers in every Postgres.
const typeInt8, typeInt8Array = 20, 1016

// preparations are the steps that prepare all that a session runs.
func preparations(q *sequences, kept durability) (all []step) {
	prepare := func(name, sql string, argument uint32) {
		all = append(all, step{prepare: name, sql: q.in(sql), arguments: []uint32{argument, argument}})
	}
	texts := expressions
	texts[raiseFloor], texts[raiseNumbers] = raise(kept)
	for o, text := range texts {
		text = argK.ReplaceAllLiteralString(text, "$1")
		prepare(op(o).name(), "SELECT "+argT.ReplaceAllLiteralString(text, "$2"), typeInt8)
	}
	for g := taking; g < groups; g++ {
		prepare(g.name(), g.sql(), typeInt8Array)
	}
	return all
}

var argK, argT = regexp.MustCompile(`\bK\b`), regexp.MustCompile(`\bT\b`)

// A statement is one execution: of one call, or of many of a group.
type statement struct {
	group group
	calls []*call
	rows  int
}

func (st *statement) many() bool { return len(st.calls) > 1 }

// expects is how many rows the answer has: one for each call, and the token of a group.
func (st *statement) expects() int {
	if st.many() {
		return len(st.calls) + 1
	}
	return len(st.calls)
}

// bind has the arguments, in the binary format: K and T, or ops and keys.
func (st *statement) bind() *pgproto3.Bind {
	format := []int16{pgproto3.BinaryFormat}
	m := &pgproto3.Bind{ParameterFormatCodes: format, ResultFormatCodes: format}
	if c := st.calls[0]; !st.many() {
		m.PreparedStatement = c.op.name()
		m.Parameters = [][]byte{appendInt8(nil, c.arg), appendInt8(nil, c.rank)}
	} else {
		m.PreparedStatement = st.group.name()
		m.Parameters = [][]byte{
			array(st.calls, func(c *call) int64 { return int64(c.op) }),
			array(st.calls, func(c *call) int64 { return c.arg }),
		}
	}
	return m
}

func appendInt8(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func array(calls []*call, value func(*call) int64) (b []byte) {
	const dimensions, noNulls, lowerBound, size = 1, 0, 1, 8
	for _, v := range []uint32{dimensions, noNulls, typeInt8, uint32(len(calls)), lowerBound} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	for _, c := range calls {
		b = appendInt8(binary.BigEndian.AppendUint32(b, size), value(c))
	}
	return b
}

// row takes one row of the result. The row after the last call's is the token of all that
// got their lock.
func (st *statement) row(m *pgproto3.DataRow) bool {
	if len(m.Values) != 1 || len(m.Values[0]) != 8 || st.rows == st.expects() {
		return false
	}
	value := int64(binary.BigEndian.Uint64(m.Values[0]))
	if st.rows < len(st.calls) {
		st.calls[st.rows].value = value
	} else {
		for _, c := range st.calls {
			if c.value == gotLock {
				c.value = value
			}
		}
	}
	st.rows++
	return true
}
