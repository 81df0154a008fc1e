package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/workload"
)

// A benchRow is a figure that people compare backends by.
type benchRow struct {
	title  string
	of     func(*benchResult) *workload.Result
	metric workload.Metric
	absent string // what stands where there is no figure
}

func ofFree(r *benchResult) *workload.Result       { return r.Free }
func ofOwn(r *benchResult) *workload.Result        { return r.Own }
func ofGoroutines(r *benchResult) *workload.Result { return r.Goroutines }
func ofClients(r *benchResult) *workload.Result    { return r.Clients }
func ofHeld(r *benchResult) *workload.Result       { return r.Held }
func ofWaiting(r *benchResult) *workload.Result    { return r.Waiting }

// benchRows are those of the table, with a heading where the title ends in a colon.
var benchRows = []benchRow{
	{title: "a free lock, one goroutine:"},
	{"lock + unlock a second", ofFree, workload.Rate, ""},
	{"to get it, µs (median)", ofFree, workload.LockP50, ""},
	{"to get it, µs (99 %)", ofFree, workload.LockP99, ""},
	{title: "many goroutines with a lock each:"},
	{"lock + unlock a second", ofOwn, workload.Rate, ""},
	{"allocations each", ofOwn, workload.Allocs, ""},
	{title: "goroutines of one client, one lock:"},
	{"hand-overs a second", ofGoroutines, workload.HandOvers, ""},
	{"most for fewest", ofGoroutines, workload.Fairness, "one got none"},
	{title: "clients, one lock:"},
	{"hand-overs a second", ofClients, workload.HandOvers, ""},
	{"hand-over, µs (median)", ofClients, workload.PassP50, ""},
	{"hand-over, µs (99 %)", ofClients, workload.PassP99, ""},
	{"most for fewest", ofClients, workload.Fairness, "one got none"},
	{"overlaps, lost updates", ofClients, workload.Violations, ""},
	{title: "many locks held:"},
	{"CPU of this process, %", ofHeld, workload.IdleClient, ""},
	{"bytes a lock", ofHeld, workload.HeapEach, ""},
	{"goroutines in all", ofHeld, workload.Goroutines, ""},
	{"lost", ofHeld, workload.Lost, ""},
	{title: "many that wait for one lock:"},
	{"CPU of this process, %", ofWaiting, workload.IdleClient, ""},
	{"bytes a waiter", ofWaiting, workload.HeapEach, ""},
	{"hand-over after a rest, µs", ofWaiting, workload.IdlePass, ""},
}

// cell is the figure of a backend.
func (b benchRow) cell(r *benchResult) string {
	if b.of == nil {
		return ""
	}
	if v, known := b.of(r).Figures[b.metric]; known {
		return chart.Number(v)
	}
	if b.absent != "" {
		return b.absent
	}
	return "-"
}

func (r *benchReport) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, b := range r.Backends {
		fmt.Fprint(t, "\t", b.Backend)
	}
	fmt.Fprintln(t)
	for _, row := range benchRows {
		if row.of != nil {
			fmt.Fprint(t, "  ")
		}
		fmt.Fprint(t, row.title)
		for _, b := range r.Backends {
			fmt.Fprint(t, "\t", row.cell(b))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // as with all that is printed, nobody is there to hear of it
}
