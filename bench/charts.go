package main

import (
	"maps"
	"slices"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/workload"
)

// colours of the servers, the same in all charts.
var colours = map[string]int{"redis": 0, "etcd": 1, "zookeeper": 2, "postgres": 3, "file": 5, "memory": 6}

// charts are all drawings of what was measured, by name.
func (r *report) charts() map[string]string {
	all := map[string]string{
		"w1": r.bars("W1", workload.Rate, "One goroutine, free locks", "lock + unlock a second; the line is from the worst to the best round"),
		"w2": r.bars("W2", workload.Rate, "64 goroutines with a lock each", "lock + unlock a second"),
		"w3": r.logBars("W3", workload.HandOvers, "16 goroutines of one client, one lock", "hand-overs a second; each mark is ten times the one before"),
		"w4": r.logBars("W4", workload.HandOvers, "16 clients, one lock", "hand-overs a second; each mark is ten times the one before"),
		"w5": r.logBars("W5", workload.IdleClient, "10,000 locks held", "CPU of the client, % of one core; less is better"),
		"w6": r.logBars("W6", workload.IdleRequest, "500 who wait for one lock", "requests a second while nothing happens; less is better"),

		"own-keys": r.lines("own keys", workload.Rate, "Goroutines with a lock each", "goroutines", "lock + unlock/s"),
		"clients":  r.lines("clients", workload.HandOvers, "Clients that want one lock", "clients", "hand-overs/s"),
		"waiters":  r.lines("waiters", workload.QueuedCPU, "Waiters for one lock: cost of a hand-over", "waiters", "client CPU µs"),
		"waiting":  r.lines("waiters", workload.HeapEach, "Waiters for one lock: memory", "waiters", "bytes each"),
		"held":     r.lines("held", workload.HeldClient, "Locks held: cost of keeping one", "locks", "client CPU µs/s"),
		"holding":  r.lines("held", workload.HeapEach, "Locks held: memory", "locks", "bytes each"),
	}
	maps.DeleteFunc(all, func(_, svg string) bool { return svg == "" })
	return all
}

func (r *report) bars(id string, m workload.Metric, title, subtitle string) string {
	return r.barChart(id, m, title, subtitle, false)
}

func (r *report) logBars(id string, m workload.Metric, title, subtitle string) string {
	return r.barChart(id, m, title, subtitle, true)
}

// barChart leaves out what has no server where it would dwarf the others.
func (r *report) barChart(id string, m workload.Metric, title, subtitle string, log bool) string {
	if !r.measured(id) {
		return ""
	}
	c := chart.BarChart{Title: title, Subtitle: subtitle, Log: log}
	for _, a := range r.ranked(id) {
		s := r.figure(id, a.Name, m)
		if s.rounds == 0 || a.Server == noneServer && !log {
			continue
		}
		bar := chart.Bar{Label: a.Name, Value: s.mid, Low: s.low, High: s.high, Colour: -1}
		if a.Role == ours {
			bar.Colour = colourOf(a)
		}
		c.Bars = append(c.Bars, bar)
	}
	return c.SVG()
}

func colourOf(a about) int {
	for name, n := range colours {
		if a.Server == name || a.Name == "dlock "+name {
			return n
		}
	}
	return -1
}

// lines draws a series on logarithmic axes, others than this library dashed.
func (r *report) lines(id string, m workload.Metric, title, x, y string) string {
	if !r.measured(id) {
		return ""
	}
	c := chart.LineChart{Title: title, X: x, Y: y, LogX: true, LogY: true}
	for _, a := range r.About {
		line := chart.Line{Name: a.Name, Colour: colourOf(a), Dashed: a.Role != ours || a.Name == onRedlock}
		for _, rec := range r.Records {
			if v := rec.Figures[m]; rec.Workload == id && rec.Contender == a.Name && v > 0 {
				line.Points = append(line.Points, chart.Point{X: float64(rec.X), Y: v})
			}
		}
		slices.SortFunc(line.Points, func(a, b chart.Point) int { return int(a.X - b.X) })
		if line.Points != nil {
			c.Lines = append(c.Lines, line)
		}
	}
	return c.SVG()
}
