package pg

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// The server's queue for a lock is first come, first served, but nobody stays in it
// for longer than a slice: a statement that waits keeps vacuum and CREATE INDEX
// CONCURRENTLY from going on. So that the end of a slice does not cost the place,
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
// The rank of a request that has no ticket is how long ago it came, in hundredths of
// a second, and its mode in the lowest bit. isTicket sets tickets apart from ranks.
const (
	isTicket = 1 << 32
	rankUnit = 10 * time.Millisecond

	ticketOfRank = "CASE WHEN T >= 4294967296 THEN T & 4294967295 ELSE" +
		" (((extract(epoch FROM statement_timestamp()) * 100)::int8 - (T >> 1)) * 2 + (T & 1)) & 4294967295 END"
	ticketClass = "(K >> 32)::int4"

	claimExpression = "CASE WHEN NOT pg_try_advisory_lock_shared" + claimKey + " THEN 0" +
		" WHEN pg_try_advisory_lock_shared(" + ticketClass + ", (" + ticketOfRank + ")::bit(32)::int4)" +
		" THEN " + ticketOfRank + " | 4294967296 ELSE 0 * pg_advisory_unlock_shared" + claimKey + "::int END"
	resignExpression = "(pg_advisory_unlock_shared(" + ticketClass + ", T::bit(32)::int4)" +
		" AND pg_advisory_unlock_shared" + claimKey + ")::int::int8"

	// A ticket is older if it is less by less than half of the circle of 31 bits.
	elderExpression = `EXISTS (SELECT FROM pg_locks c JOIN pg_locks t USING (pid)
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
func (a *ask) rank() int64 {
	n := int64(time.Since(a.since)/rankUnit) << 1
	if !a.shared {
		n |= 1
	}
	return min(n, isTicket-1)
}

// standing is the ticket of a, or its rank.
func (a *ask) standing() int64 {
	if a.ticket != 0 {
		return a.ticket
	}
	return a.rank()
}

// needsClaim reports whether a has no claim, or has lost it with its session.
func (a *ask) needsClaim() bool { return a.claimant == nil || !a.claimant.lives() }

// makeClaim makes a claim for a, as old as a is. If it fails, a goes on without.
func (a *ask) makeClaim() {
	if !a.needsClaim() {
		return
	}
	a.withdraw()
	s, err := a.backend.shared(a.ctx, line{a.lease, holding})
	if err != nil {
		return
	}
	const tries = 5 // somebody may be looking for claims just then
	for range tries {
		ticket, err := s.run(claim, a.place.key, a.standing())
		if err != nil {
			break
		}
		if ticket != 0 {
			a.claimant, a.ticket = s, ticket
			s.claims.Add(1)
			return
		}
	}
	a.backend.leave(s)
}

// withdraw takes the claim of a back.
func (a *ask) withdraw() {
	s := a.claimant
	if s == nil {
		return
	}
	a.claimant = nil
	s.claims.Add(-1)
	_, _ = s.run(resign, a.place.key, a.ticket) // fails only with the session
	a.backend.leave(s)
}

// dispute decides whether a may keep what c has got while there are claims to it. If
// one of them comes before, c has got nothing, and who waits makes a claim as well.
func (a *ask) dispute(s *session, c *call) {
	before, err := s.run(elder, c.arg, a.standing())
	switch {
	case err != nil:
		c.err = err
	case before != 0:
		c.value = 0
		a.yield(s, c)
	case c.op == probe:
		c.value = 1
	default:
		c.value, c.err = s.run(draw, c.arg, 0)
	}
}

func (a *ask) yield(s *session, c *call) {
	if a.ctx != nil && a.isPatient() {
		a.makeClaim()
	}
	if c.op == probe {
		return
	}
	v, err := s.run(unlockOp(a.shared), c.arg, 0)
	if c.err = err; v == heardOf {
		s.tellListeners(c.arg)
	}
	if c.op.waits() && a.ctx != nil {
		backend.Sleep(a.ctx, a.yields.Next())
	}
}

func (a *ask) isPatient() bool {
	a.backend.mu.Lock()
	defer a.backend.mu.Unlock()
	return a.patient > 0
}
