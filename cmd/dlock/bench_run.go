package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/workload"
)

// A benchReport is what dlock bench found out.
type benchReport struct {
	Seconds  float64        `json:"seconds"` // of each measurement
	Backends []*benchResult `json:"backends"`
}

// A benchResult is what it found out about one backend.
type benchResult struct {
	Backend    string           `json:"backend"` // its number and its URL without credentials
	TTL        float64          `json:"ttl_seconds"`
	Free       *workload.Result `json:"free"`       // one goroutine, a lock that nobody else wants
	Own        *workload.Result `json:"own"`        // many goroutines with a lock each
	Goroutines *workload.Result `json:"goroutines"` // many goroutines of one client, one lock
	Clients    *workload.Result `json:"clients"`    // many clients, one lock
	Held       *workload.Result `json:"held"`       // many locks that are held
	Waiting    *workload.Result `json:"waiting"`    // many goroutines that wait for one lock
}

// A benchStep is one workload.
type benchStep struct {
	title string
	run   func(ctx context.Context, s *benchTarget, r *benchResult) error
}

const (
	queueTTL     = time.Minute // longer than all of the queue
	queueClients = 10
)

func (z benchSize) steps() []benchStep {
	load := func(s *benchTarget, name string, clients, goroutines int) workload.Load {
		return workload.Load{Name: s.names + "/" + name, Clients: clients, Goroutines: goroutines, Time: z.Time, TTL: s.ttl}
	}
	return []benchStep{
		{"a free lock", func(ctx context.Context, s *benchTarget, r *benchResult) (err error) {
			r.Free, err = workload.OwnKeys(ctx, s.Contender, load(s, "free", 1, 1))
			return err
		}},
		{"own locks", func(ctx context.Context, s *benchTarget, r *benchResult) (err error) {
			r.Own, err = workload.OwnKeys(ctx, s.Contender, load(s, "own", 1, z.Goroutines))
			return err
		}},
		{"goroutines", func(ctx context.Context, s *benchTarget, r *benchResult) (err error) {
			r.Goroutines, err = workload.OneKey(ctx, s.Contender, load(s, "goroutines", 1, z.Clients))
			return err
		}},
		{"clients", func(ctx context.Context, s *benchTarget, r *benchResult) (err error) {
			r.Clients, err = workload.OneKey(ctx, s.Contender, load(s, "clients", z.Clients, z.Clients))
			return err
		}},
		{"held locks", func(ctx context.Context, s *benchTarget, r *benchResult) (err error) {
			r.Held, err = workload.Held(ctx, s.Contender, workload.Stock{
				Name: s.names + "/held", Locks: z.Held, TTL: s.ttl, Time: max(z.Time, min(s.ttl, 2*z.Time)),
			})
			return err
		}},
		{"waiting", func(ctx context.Context, s *benchTarget, r *benchResult) (err error) {
			r.Waiting, err = workload.Waiting(ctx, s.Contender, workload.Queue{
				Name: s.names + "/waiting", Waiters: z.Waiting, Clients: min(z.Waiting, queueClients), Time: z.Time, TTL: queueTTL,
			})
			return err
		}},
	}
}

// runAll lets the backends take turns at each workload.
func (o *benchOptions) runAll(ctx context.Context, all []*benchTarget) (*benchReport, error) {
	report := &benchReport{Seconds: o.size.Time.Seconds()}
	for _, s := range all {
		report.Backends = append(report.Backends, &benchResult{Backend: s.Name, TTL: s.ttl.Seconds()})
	}
	steps := o.size.steps()
	var done atomic.Int64
	part := func() float64 { return float64(done.Load()) / float64(len(steps)*len(all)) }
	for _, step := range steps {
		stop := showProgress(o.std.err, step.title, part)
		for i, s := range all {
			if err := step.run(ctx, s, report.Backends[i]); err != nil {
				stop()
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			done.Add(1)
		}
		stop()
	}
	return report, nil
}

func (r *benchReport) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
