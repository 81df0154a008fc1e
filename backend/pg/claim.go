package pg

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// The server's queue for a lock is first come, first served, but nobody stays in it
// for longer than a slice: a statement that waits keeps vacuum and CREATE INDEX
// CONCURRENTLY from going on. So that the end of a slice does not cost the position,
// a request that has waited for so long takes a claim to the lock. Claims are
// ordered by when the requests came. Who gets the lock while there are claims to it
// gives it back if one of them comes before, and waits again.
//
// A claim is two shared advisory locks of a session that does not wait: one on a
// key made of the lock's, which tells with one look that there are claims, and its
// ticket, in the key space of two integers. The first is the upper half of the
// lock's key. The second is the time of arrival by the server's clock, in hundredths
// of a second, in the upper 31 bits, and 1 for a writer. Readers do not come before
// one another. A claim ends with its session, as a lock does.
//
// The ticket is first taken for the transaction alone: it then has its place in the
// server's lock table, and if that has no room for the other key, the failure leaves
// neither.
//
// The rank of a request that has no ticket is how long ago it came, in hundredths of
// a second, and its mode in the lowest bit. isTicket sets tickets apart from ranks.
const (
	isTicket = 1 << 32
	rankUnit = 10 * time.Millisecond

	ticketOfRank = "CASE WHEN T >= 4294967296 THEN T & 4294967295 ELSE" +
		" (((extract(epoch FROM statement_timestamp()) * 100)::int8 - (T >> 1)) * 2 + (T & 1)) & 4294967295 END"
	ticketClass = "(K >> 32)::int4"

	ticketKey       = "(" + ticketClass + ", (" + ticketOfRank + ")::bit(32)::int4)"
	claimExpression = "CASE WHEN NOT pg_try_advisory_xact_lock_shared" + ticketKey + " THEN 0" +
		" WHEN NOT pg_try_advisory_lock_shared" + claimKey + " THEN 0" +
		" WHEN pg_try_advisory_lock_shared" + ticketKey + " THEN " + ticketOfRank + " | 4294967296 END"
	dropClaimExpression = "(pg_advisory_unlock_shared(" + ticketClass + ", T::bit(32)::int4)" +
		" AND pg_advisory_unlock_shared" + claimKey + ")::int::int8"

	// A ticket is older if it is less by less than half of the circle of 31 bits.
	olderClaimExpression = `EXISTS (SELECT FROM pg_locks c JOIN pg_locks t USING (pid)
		CROSS JOIN (SELECT ` + ticketOfRank + ` AS mine) m
		WHERE c.locktype = 'advisory' AND c.objsubid = 1 AND c.granted
		AND c.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND c.classid = ((` + claimKey + ` >> 32) & 4294967295)::oid AND c.objid = (` + claimKey + ` & 4294967295)::oid
		AND t.locktype = 'advisory' AND t.objsubid = 2 AND t.granted AND t.database = c.database
		AND t.classid = ((K >> 32) & 4294967295)::oid
		AND (mine | t.objid::int8) & 1 = 1
		AND ((t.objid::int8 >> 1) - (mine >> 1)) & 2147483647 > 1073741823)::int::int8`
)

// rank is that of a, without a claim.
func (a *attempt) rank() int64 {
	n := int64(time.Since(a.since)/rankUnit) << 1
	if !a.shared {
		n |= 1
	}
	return min(n, isTicket-1)
}

// precedence is the ticket of a, or its rank if it has none.
func (a *attempt) precedence() int64 {
	if a.claim.value != 0 {
		return a.claim.value
	}
	return a.rank()
}

// resolveDispute decides whether a may keep the lock that c has got while there are
// claims to it. If an older claim exists, the lock is given back and counts as held,
// and a that waits makes a claim as well.
func (a *attempt) resolveDispute(s *session, c *call) {
	before, err := s.run(olderClaim, c.arg, a.precedence())
	switch {
	case err != nil:
		c.err = err
	case before != 0:
		c.value = 0
		a.giveWay(s, c)
	case c.op == probe:
		c.value = 1
	default:
		c.value, c.err = s.run(drawToken, c.arg, 0)
	}
}

// giveWay gives back the lock that c has got, for an older claim.
func (a *attempt) giveWay(s *session, c *call) {
	if !a.claim.isSet() && a.hasWaiters() {
		a.setMark(&a.claim)
	}
	if c.op == probe {
		return
	}
	v, err := s.run(unlockExclusive.of(a.shared), c.arg, 0)
	switch {
	case v == someoneListens:
		s.notifyListeners(c.arg)
	case err != nil && s.survives(err): // perhaps with the unlock of another
		s.giveBack(c.op.undo(), c.arg)
	default:
		c.err = err
	}
	if c.op.waits() {
		backend.Sleep(a.ctx, a.yieldDelay.Next())
	}
}

func (a *attempt) hasWaiters() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.waiters > 0
}
