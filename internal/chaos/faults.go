package chaos

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/internal/faultnet"
)

// ProcessFaults befall a worker's process. Some of them take the lock from it
// where there is a lease.
func ProcessFaults() []Fault {
	return []Fault{
		{ID: "F-01", Name: "holder killed", Min: 0, Max: 0.2, Inject: killWorker},
		{ID: "F-04", Name: "holder exits without Unlock", Min: 0, Max: 0.2, Inject: exitWorker},
		{ID: "F-02", Name: "holder stopped for less than its lease", Min: 0.1, Max: 0.5, Inject: stopWorker},
		{ID: "F-03", Name: "holder stopped past its lease", Min: 1.2, Max: 3, Inject: stopWorker},
	}
}

func killWorker(_ context.Context, v *Victim) (func() error, error) {
	return v.restart, v.end(syscall.SIGKILL)
}

// exitWorker ends the process as a signal does that a program does not handle:
// its files and connections are closed and nothing is unlocked.
func exitWorker(_ context.Context, v *Victim) (func() error, error) {
	return v.restart, v.end(syscall.SIGTERM)
}

func stopWorker(ctx context.Context, v *Victim) (func() error, error) {
	return v.resume, v.stop(ctx)
}

// NetworkFaults befall the connections of one worker.
func NetworkFaults(ttl time.Duration) []Fault {
	return []Fault{
		{ID: "F-20", Name: "both ways dark", Min: 0.5, Max: 3, Inject: blackhole(faultnet.BothWays)},
		{ID: "F-21", Name: "replies dark", Min: 0.5, Max: 3, Inject: blackhole(faultnet.ToClient)},
		{ID: "F-21", Name: "requests dark", Min: 0.5, Max: 3, Inject: blackhole(faultnet.ToServer)},
		{ID: "F-22", Name: "replies lost, some of them to acquire, unlock and renew", Min: 0.5, Max: 1, Inject: dropReplies},
		{ID: "F-27", Name: "connections reset", Min: 0, Max: 0.5, Inject: reset},
		{ID: "F-28", Name: "slow, with jitter", Min: 0.5, Max: 3, Inject: slow(ttl)},
		{ID: "F-29", Name: "connections refused", Min: 0.5, Max: 3, Inject: refuse},
	}
}

func blackhole(way faultnet.Way) func(context.Context, *Victim) (func() error, error) {
	return func(_ context.Context, v *Victim) (func() error, error) {
		v.Proxies.Blackhole(way)
		return v.Proxies.Heal, nil
	}
}

// dropReplies loses a number of replies, wherever they come.
func dropReplies(_ context.Context, v *Victim) (func() error, error) {
	for n := range 8 {
		v.Proxies.DropReply(1 + 7*n)
	}
	return v.Proxies.Heal, nil
}

func reset(_ context.Context, v *Victim) (func() error, error) {
	v.Proxies.Reset()
	return nil, nil
}

func slow(ttl time.Duration) func(context.Context, *Victim) (func() error, error) {
	return func(_ context.Context, v *Victim) (func() error, error) {
		v.Proxies.Delay(faultnet.BothWays, ttl/10, ttl/4)
		return v.Proxies.Heal, nil
	}
}

func refuse(_ context.Context, v *Victim) (func() error, error) {
	v.Proxies.Refuse()
	v.Proxies.Reset()
	return v.Proxies.Heal, nil
}

// A Server can be treated badly.
type Server interface {
	Pause() error
	Resume() error
	Kill() error
	Stop() error
	Restart(keepData bool) error
}

// ServerFaults befall the server. Whether it keeps who holds a lock when it is
// restarted with its data depends on the server.
func ServerFaults(s Server, forgets bool) []Fault {
	return []Fault{
		{ID: "F-10", Name: "server killed, restarted with its data", Min: 0, Max: 1, Forgets: forgets, Inject: down(s.Kill, s)},
		{ID: "F-12", Name: "server stopped for less than a lease", Min: 0.1, Max: 0.5, Inject: freeze(s)},
		{ID: "F-13", Name: "server stopped past the lease", Min: 1.2, Max: 3, Inject: freeze(s)},
		{ID: "F-14", Name: "server shut down and restarted", Min: 0, Max: 1, Forgets: forgets, Inject: down(s.Stop, s)},
	}
}

func down(end func() error, s Server) func(context.Context, *Victim) (func() error, error) {
	return func(context.Context, *Victim) (func() error, error) {
		return func() error { return s.Restart(true) }, end()
	}
}

func freeze(s Server) func(context.Context, *Victim) (func() error, error) {
	return func(context.Context, *Victim) (func() error, error) { return s.Resume, s.Pause() }
}

// Once is a fault that is over as soon as it has happened.
func Once(do func(context.Context) error) func(context.Context, *Victim) (func() error, error) {
	return func(ctx context.Context, _ *Victim) (func() error, error) { return nil, do(ctx) }
}

// Lossy is a server that is killed and comes back empty.
func Lossy(s Server) func(context.Context, *Victim) (func() error, error) {
	return func(context.Context, *Victim) (func() error, error) {
		return nil, errors.Join(s.Kill(), s.Restart(false))
	}
}
