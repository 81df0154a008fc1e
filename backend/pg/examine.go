package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/backend"
)

// health is what Examine asks: the version, how many locks there are and may be, how many
// connections there may be and are, and which process answers.
const health = `SELECT current_setting('server_version_num')::int8, (SELECT count(*) FROM pg_locks), ` + lockTableRoom + `,
	current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8,
	(SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL), pg_backend_pid()::int8`

// Examine implements backend.Examiner. It makes a connection of its own, which looks for
// what every connection looks for: a pooler, a standby, the sequences, advisory locks
// that exclude. For a client that inspects only it makes no sequences, and tries whether it
// could.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	s, unfit := b.useShared(ctx, leaseOf(listenLease))
	if unfit == nil {
		defer b.stopUsing(s)
	} else if !errors.Is(unfit, backend.ErrAuth) && !errors.Is(unfit, backend.ErrConflict) && !errors.Is(unfit, errNotMade) {
		return unfit
	}
	n, err := b.readInts(ctx, health)
	switch {
	case err != nil:
		return err
	case len(n) != 6:
		return backend.Fail(backend.ErrUnavailable, errProtocol)
	}
	report(checkVersion(n[0]))
	if unfit == nil {
		report(b.checkPooler(int64(s.pid) == n[5]))
	}
	report(checkLockTable(n[1], n[2]))
	report(b.checkConnections(n[3], n[4]))
	if unfit == nil {
		report(b.checkDial(ctx))
	} else {
		report(checkSequences(unfit))
	}
	return nil
}

// checkSequences is told why there is no session that could lock.
func checkSequences(unfit error) backend.Finding {
	const subject = "locks"
	switch {
	case errors.Is(unfit, errNotMade):
		return backend.Good(subject, "no program has taken a lock here yet; this role may make what the first one needs")
	case errors.Is(unfit, backend.ErrAuth):
		return backend.Bad(subject, unfit.Error(), "do that as an administrator, or examine as the role of the programs")
	}
	return backend.Bad(subject, unfit.Error(), "examine as the role of the programs, or add owner=ROLE to the URL")
}

func checkVersion(num int64) backend.Finding {
	const subject = "version"
	text := "the server is Postgres " + versionName(num)
	if num < leaseVersion {
		return backend.Warn(subject, text+": it does not end idle sessions, so that the locks of a process that is stopped stay", "use Postgres 14 or later")
	}
	return backend.Good(subject, text)
}

// checkPooler is told whether two connections that are open share a process.
func (b *Backend) checkPooler(shared bool) backend.Finding {
	const subject = "pooler"
	switch {
	case shared:
		return backend.Bad(subject, "one process of the server answers on two connections: the pooler works by transaction, and locks exclude nobody",
			"connect to the server itself, or have the pooler work by session (pool_mode=session)")
	case b.opts.SessionPooler:
		return backend.Warn(subject, "pooler=session is set, and a pooler that works by transaction may look the same while others use it",
			"see that the pooler has pool_mode=session, or connect to the server itself")
	}
	return backend.Good(subject, "no pooler stands before the server")
}

// checkLockTable compares the locks of all programs with the room for them.
func checkLockTable(used, room int64) backend.Finding {
	const subject = "lock table"
	text := fmt.Sprintf("%d locks of all kinds, and room for about %d", used, room)
	if used > room/2 {
		return backend.Warn(subject, text, "raise max_locks_per_transaction: statements of every program fail in a full table")
	}
	return backend.Good(subject, text)
}

func (b *Backend) checkConnections(most, used int64) backend.Finding {
	const subject = "connections"
	text := fmt.Sprintf("%d of %d are in use, and this client may need %d", used, most, b.opts.MaxConns)
	if most-used < int64(b.opts.MaxConns) {
		return backend.Warn(subject, text, "raise max_connections, or lower max_conns")
	}
	return backend.Good(subject, text)
}

// checkDial makes a session as holds have it, and ends it.
func (b *Backend) checkDial(ctx context.Context) backend.Finding {
	const subject = "locks"
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	s, err := b.takeForWait(ctx, listenLease)
	if err == nil {
		err = checkLocks(ctx, s)
		b.stopUsing(s)
	}
	switch {
	case err == nil:
		return backend.Good(subject, "a lock was taken, is in the server's list, and was given back")
	case errors.Is(err, errNoConnection):
		return backend.Warn(subject, "this client has as many connections as it may: no lock was tried", "raise max_conns")
	}
	return backend.Bad(subject, err.Error(), "see the package's permissions")
}
