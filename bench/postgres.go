package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq" // the driver that pglock asks for

	"github.com/dlock-go/dlock/internal/workload"
)

const advisoryFloor = "floor advisory lock, a connection each"

func postgresRivals(s *servers) []contender {
	url, m := fmt.Sprintf(postgresURL, s.postgres.Addr()), s.postgresMeter()
	return []contender{
		{
			Contender: workload.Contender{Name: advisoryFloor, Meter: m, Open: openAdvisory(url)},
			Role:      floor, Server: "postgres", Best: true,
			Note: "first come first served; a connection for each goroutine; no lease, loss is not told",
		},
		{
			Contender: workload.Contender{Name: "cirello pglock", Meter: m, Open: openPglock(url)},
			Role:      peer, Server: "postgres", Only: []string{"W1", "W2", "W3", "W4", "W6"},
			Note: "renewal; no order: a waiter asks again after a whole lease, which is 3 s as in its README. " +
				"Not in W5: it would take longer to take 10,000 locks than all others together",
		},
	}
}

// pins are connections for one handle each. Locks that are kept share one, as a
// session can hold any number.
type pins struct {
	url  string
	keep bool
	mu   sync.Mutex
	all  []*pin
}

type pin struct {
	mu   sync.Mutex // statements of one connection follow each other
	conn *pgx.Conn
}

func openAdvisory(url string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(ctx context.Context, o workload.Options) (workload.Client, error) {
		p := &pins{url: url, keep: o.Keep}
		return client{func(name string) workload.Lock { return p.lock(ctx, name) }, p.close}, nil
	}
}

func (p *pins) lock(ctx context.Context, name string) workload.Lock {
	c, err := p.pin(ctx)
	if err != nil {
		return broken(err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	key := int64(h.Sum64())
	return handle{
		func(ctx context.Context) error { return c.exec(ctx, "SELECT pg_advisory_lock($1)", key) },
		func(ctx context.Context) error { return c.exec(ctx, "SELECT pg_advisory_unlock($1)", key) },
	}
}

func (p *pins) pin(ctx context.Context) (*pin, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keep && len(p.all) > 0 {
		return p.all[0], nil
	}
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	c := &pin{conn: conn}
	p.all = append(p.all, c)
	return c, nil
}

func (c *pin) exec(ctx context.Context, sql string, key int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Exec(ctx, sql, key)
	return err
}

func (p *pins) close() error {
	var errs []error
	for _, c := range p.all {
		errs = append(errs, c.conn.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// openPglock is set up as its README says. The table is there once.
func openPglock(url string) func(context.Context, workload.Options) (workload.Client, error) {
	return func(context.Context, workload.Options) (workload.Client, error) {
		db, err := sql.Open("postgres", url)
		if err != nil {
			return nil, err
		}
		const connections = 64
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		c, err := pglock.New(db, pglock.WithLeaseDuration(3*time.Second), pglock.WithHeartbeatFrequency(time.Second))
		if err == nil {
			err = c.TryCreateTable()
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return client{func(name string) workload.Lock {
			var held *pglock.Lock
			return handle{
				func(ctx context.Context) (err error) { held, err = c.AcquireContext(ctx, name); return err },
				func(ctx context.Context) error { return c.ReleaseContext(ctx, held) },
			}
		}, db.Close}, nil
	}
}
