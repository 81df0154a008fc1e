// Package gocronlock has each job of gocron schedulers on several machines run on one of
// them, by locks of package dlock:
//
//	locker := gocronlock.NewLocker(client)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// A Locker gives each run of a job to whoever comes first. An Elector has one machine run
// all jobs until it ends or fails. gocron asks one or the other: if it has both, the
// Elector.
//
// To end, shut the scheduler down, then close the Elector, then the client.
package gocronlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/go-co-op/gocron/v2"
)

// DefaultMinHold is how long the lock of a run is kept at least, if no
// dlock.WithMinHold says otherwise.
const DefaultMinHold = 5 * time.Second

// A Locker is a gocron.Locker. It may be shared by schedulers and is safe for concurrent
// use. Make it with NewLocker. The lock of a job has the job's name: set it with
// gocron.WithName. By default it is that of the function, which may change with the code,
// and jobs of one function would share a lock.
//
// A run whose lock is held elsewhere is skipped, with dlock.ErrHeld, and so is one for
// which the server does not answer within 3 s, with dlock.ErrUnavailable: both go to
// gocron.AfterLockError. gocron drops the error of Unlock. That a lock was lost is told to
// the Logger and the Hooks of the client, and to the job by the context of Lease.
type Locker struct {
	locks *dlock.NamedLocks
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker with locks of client, which stays the caller's to close.
// Every lock is made with o.
//
// Each machine starts a run by its own clock. The first keeps the lock for
// DefaultMinHold, or what dlock.WithMinHold says, also if the job is done sooner, so that
// the others find it held. That must be longer than the starts of one run lie apart, by
// clocks, by load and by up to 3 s if the server answers late, and shorter than the job's
// interval, or runs are skipped. A job that needs another time than the rest gets a Locker
// of its own from gocron.WithDistributedJobLocker.
//
// The machines must mean the same time: use gocron.CronJob and the like, with
// gocron.WithLocation. A gocron.DurationJob counts from the start of its scheduler, and
// would run once per interval on each machine, unless gocron.WithStartAt aligns them.
func NewLocker(client *dlock.Client, o ...dlock.Option) *Locker {
	o = append([]dlock.Option{dlock.WithMinHold(DefaultMinHold)}, o...)
	return &Locker{client.NamedLocks(o...)}
}

// Lock implements gocron.Locker. It does not wait for a lock that is held.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locks.TryLock(ctx, key)
	if err != nil {
		return nil, err
	}
	return &run{locks: l.locks, lease: lease}, nil
}

// Lease returns the lease of the job that runs here under that name. A job that must not
// outlive its lock works with its context:
//
//	ctx = locker.Lease("nightly").Context(ctx)
//
// It is nil if no such job runs, and the context of a nil lease has ended.
func (l *Locker) Lease(name string) *dlock.Lease { return l.locks.Lease(name) }

// A run is the gocron.Lock of one run of a job.
type run struct {
	locks    *dlock.NamedLocks
	lease    *dlock.Lease
	unlocked atomic.Bool
}

// Unlock implements gocron.Lock. ctx may be done, as it is after a shutdown.
func (r *run) Unlock(ctx context.Context) error {
	if r.unlocked.Swap(true) { // the name may belong to a later run by now
		return r.lease.Unlock(ctx)
	}
	return r.locks.Unlock(ctx, r.lease.Name())
}
