package pg

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/backend"
)

// Ping implements backend.Pinger. The server is a primary and knows the connection that
// locks are held by.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	ctx, cancel := backend.BoundCause(ctx, backend.FirstAnswer, errNoAnswer)
	defer cancel()
	if b.inspectOnly {
		return b.readVersion(ctx)
	}
	s, err := b.useShared(ctx, leaseOf(listenLease))
	if err != nil {
		return "", err
	}
	defer b.stopUsing(s)
	c, err := s.do(ctx, ping, int64(s.pid))
	switch {
	case ctx.Err() != nil:
		return "", backend.WaitEnded(ctx, false)
	case err != nil:
		return "", classify(err)
	case c.value == 0:
		return "", backend.Fail(backend.ErrUnavailable, errStandby)
	}
	return versionName(s.version), nil
}

// readVersion asks for it on a connection of its own, which needs no other right.
func (b *Backend) readVersion(ctx context.Context) (string, error) {
	n, err := b.readInts(ctx, "SELECT current_setting('server_version_num')")
	if err != nil {
		return "", err
	}
	return versionName(n[0]), nil
}

// readInts is read for one row of whole numbers.
func (b *Backend) readInts(ctx context.Context, sql string) ([]int64, error) {
	result, err := b.read(ctx, sql)
	if err != nil {
		return nil, err
	}
	n, err := ints(result)
	if err != nil {
		return nil, backend.Fail(backend.ErrUnavailable, err)
	}
	return n, nil
}

// versionName is that of a server_version_num.
func versionName(num int64) string { return fmt.Sprintf("%d.%d", num/10000, num%10000) }

// Inspect implements backend.Inspector. It makes a connection of its own and reads
// pg_locks. While the server copies its lock table, nobody can lock or unlock anything:
// with 10,000 locks in it that is 1 to 2 ms, and the whole call takes 12.
//
// A lock is a number there, so any name can be asked for, and none can be listed. The
// label of a party is the application name of its connection, without the word dlock: Postgres
// cuts it off at 63 bytes, and rewrites what is not ASCII. Its
// client is the process number of that connection. Readers of one client are one holder.
// Waiters come in the order in which their statements joined the server's queue. Behind
// them come those that wait for a notification, one for each client, without a mode: the
// server does not know it.
// Tokens and times are not known: a statement's wait begins anew with each slice.
func (b *Backend) Inspect(ctx context.Context, name string) (out backend.Snapshot, err error) {
	result, err := b.read(ctx, parties(b.key(name)))
	if err != nil {
		return out, err
	}
	listening, seen := make(map[string]bool), make(map[string]bool)
	for _, row := range result.Rows {
		if len(row) != 4 {
			return backend.Snapshot{}, backend.Fail(backend.ErrUnavailable, errProtocol)
		}
		kind, exclusive, pid, application := string(row[0]), string(row[1]), string(row[2]), string(row[3])
		label := strings.TrimSpace(strings.TrimPrefix(application, "dlock"))
		p := backend.Party{Label: label, Client: pid, Mode: backend.Shared}
		switch {
		case kind == listens:
			p.Mode = 0
		case exclusive == "1":
			p.Mode = backend.Exclusive
		}
		listening[pid] = listening[pid] || kind == listens
		switch {
		case kind != holds:
			out.Waiters = append(out.Waiters, p)
		case !seen[pid]: // a connection has both modes while it downgrades
			p.Entries = 1
			out.Holders = append(out.Holders, p)
			seen[pid] = true
		}
	}
	// A connection that listens holds nothing: it has the key while a statement finds out
	// whether readers may join.
	out.Holders = slices.DeleteFunc(out.Holders, func(p backend.Party) bool { return listening[p.Client] })
	return out, nil
}

// Names implements backend.Inspector: it reports ErrUnsupported.
func (b *Backend) Names(context.Context, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", backend.Fail(backend.ErrUnsupported, errNumbers)) }
}

// What a party does with a lock, as a statement's answer tells: see parties.
const holds, waits, listens = "0", "1", "2"

// parties selects what each connection has to do with a key: holds, waits or listens, 1 if
// that is exclusive, its process and its application. Who waits is in order. From Postgres
// 14 on there is a column waitstart.
func parties(key int64) string {
	const half = 1<<32 - 1
	listen := key ^ listenMask
	return fmt.Sprintf(`SELECT CASE WHEN l.classid <> %d OR l.objid <> %d THEN %s WHEN l.granted THEN %s ELSE %s END,
			(l.mode = 'ExclusiveLock')::int, l.pid, coalesce(a.application_name, '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.objsubid = 1
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (l.classid = %[1]d AND l.objid = %[2]d OR l.granted AND l.classid = %[6]d AND l.objid = %[7]d)
		ORDER BY 1, (to_jsonb(l) ->> 'waitstart')::timestamptz NULLS LAST, 2 DESC, 3`,
		key>>32&half, key&half, listens, holds, waits, listen>>32&half, listen&half)
}

// read runs sql on a connection of its own.
func (b *Backend) read(ctx context.Context, sql string) (*pgconn.Result, error) {
	ctx, cancel := backend.BoundCause(ctx, backend.FirstAnswer, errNoAnswer)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	if b.ctx.Err() != nil {
		return nil, backend.ErrClosed
	}
	cfg, err := b.connectConfig(ctx, listenLease)
	if err != nil {
		return nil, err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, b.readError(ctx, err)
	}
	defer conn.Close(ctx)
	results, err := pipeline(ctx, conn, []step{{sql: sql}})
	if err != nil {
		return nil, b.readError(ctx, err)
	}
	return results[0], nil
}

func (b *Backend) readError(ctx context.Context, err error) error {
	switch {
	case b.ctx.Err() != nil:
		return backend.ErrClosed
	case ctx.Err() != nil:
		return backend.WaitEnded(ctx, false)
	}
	return classify(err)
}
