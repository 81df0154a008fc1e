package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/workload"
)

// A record is one measurement.
type record struct {
	Workload string `json:"workload"`
	X        int    `json:"x,omitempty"` // of a series
	Round    int    `json:"round"`
	workload.Result
	Error string `json:"error,omitempty"`
}

func (r record) key() string { return task{ID: r.Workload, X: r.X}.key() }

// A report is all that a run has found out, and where.
type report struct {
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Size     size              `json:"size"`
	Sittings []sitting         `json:"sittings"`
	Remark   string            `json:"remark"` // what readers have to know of this run
	About    []about           `json:"contenders"`
	Records  []record          `json:"records"`
}

// A sitting is a part of a report that was made in one go.
type sitting struct {
	Workloads []string      `json:"workloads"` // and points of series
	Took      time.Duration `json:"took_ns"`
}

// about is what a report says of a contender.
type about struct {
	Name   string `json:"name"`
	Role   role   `json:"role"`
	Server string `json:"server"`
	Note   string `json:"note"`
}

// compare runs everything. In each round the contenders of a task take turns,
// those on one server one after the other, so that all of them meet the same
// moods of the machine. A list of workloads
// that is not empty is all that is run.
func compare(ctx context.Context, s *servers, z size, only []string, log io.Writer) *report {
	start := time.Now()
	all := contenders(s)
	r := &report{Machine: machine(), Versions: versions(s), Size: z}
	for _, c := range all {
		r.About = append(r.About, about{c.Name, c.Role, c.Server, c.Note})
	}
	slices.SortStableFunc(all, func(a, b contender) int { return strings.Compare(a.Server, b.Server) })
	var done []string
	for _, t := range append(z.tasks(), z.series()...) {
		if len(only) > 0 && !slices.Contains(only, t.ID) && !slices.Contains(only, t.key()) {
			continue
		}
		some := all
		if t.X > 0 {
			some = inSeries(all, t)
		}
		r.rounds(ctx, t, some, log)
		done = append(done, t.key())
	}
	r.Sittings = []sitting{{done, time.Since(start)}}
	return r
}

// inSeries are those of whom a series is made: this library, and beside it the best
// other way where that can be had for thousands.
func inSeries(all []contender, t task) (some []contender) {
	for _, c := range all {
		switch t.ID {
		case "waiters", "held":
			if c.Role == ours {
				some = append(some, c)
			}
		default:
			if c.Role == ours || c.Best {
				some = append(some, c)
			}
		}
	}
	return some
}

func (r *report) rounds(ctx context.Context, t task, all []contender, log io.Writer) {
	for round := 1; round <= t.Rounds; round++ {
		for _, c := range all {
			if !c.in(t.ID) || t.X > c.most() || ctx.Err() != nil {
				continue
			}
			rec := t.measure(ctx, c, round)
			rec.print(log)
			r.Records = append(r.Records, rec)
		}
	}
}

func (t task) measure(ctx context.Context, c contender, round int) record {
	ctx, cancel := context.WithTimeoutCause(ctx, perPoint, fmt.Errorf("not done after %v", perPoint))
	defer cancel()
	runtime.GC() // what one leaves behind is not for the next to collect
	name := fmt.Sprintf("bench/%s/%d/%d/%s", t.ID, t.X, round, c.Name)
	result, err := t.Run(ctx, c.Contender, strings.ReplaceAll(name, " ", "-"))
	rec := record{Workload: t.ID, X: t.X, Round: round}
	if result != nil {
		rec.Result = *result
	}
	rec.Contender = c.Name
	if err != nil {
		first, rest, _ := strings.Cut(err.Error(), "\n")
		rec.Error = first
		if n := strings.Count(rest, "\n"); rest != "" {
			rec.Error = fmt.Sprintf("%s, and %d lines more", first, n+1)
		}
	}
	return rec
}

// print shows the figures that matter most while the run goes on.
func (r record) print(w io.Writer) {
	fmt.Fprintf(w, "%-9s %6d  round %d  %-40s", r.Workload, r.X, r.Round, r.Contender)
	for _, m := range []workload.Metric{
		workload.Rate, workload.HandOvers, workload.Fairness, workload.Violations, workload.Requests, workload.IdleRequest,
		workload.IdleClient, workload.HeapEach, workload.IdlePass, workload.QueuedRate, workload.Lost, workload.Unfinished,
	} {
		if v, known := r.Figures[m]; known {
			fmt.Fprintf(w, " %s=%.4g", m, v)
		}
	}
	fmt.Fprintln(w, "", r.Error)
}

// machine describes it without naming it.
func machine() string {
	model := "unknown processor"
	text, _ := os.ReadFile("/proc/cpuinfo")
	if _, rest, found := strings.Cut(string(text), "model name"); found {
		_, rest, _ = strings.Cut(rest, ": ")
		model, _, _ = strings.Cut(rest, "\n")
	}
	return fmt.Sprintf("%s, %d cores, %s/%s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

// compared are the modules whose versions a report tells.
var compared = []string{
	"cirello.io/pglock", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/go-zookeeper/zk",
	"github.com/jackc/pgx/v5", "github.com/lib/pq", "github.com/redis/go-redis/v9", "github.com/redis/rueidis", "go.etcd.io/etcd/client/v3",
}

func versions(s *servers) map[string]string { return moduleVersions(s.versions()) }

// moduleVersions adds those of Go and of the libraries compared.
func moduleVersions(all map[string]string) map[string]string {
	all["Go"] = strings.TrimPrefix(runtime.Version(), "go")
	info, _ := debug.ReadBuildInfo()
	for _, name := range compared {
		for _, dep := range info.Deps {
			if dep.Path == name {
				all[name] = dep.Version
			}
		}
	}
	return all
}
