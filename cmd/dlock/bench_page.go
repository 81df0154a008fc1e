package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/workload"
)

//go:embed bench_page.html
var benchPage string

var benchTemplate = template.Must(template.New("page").Parse(benchPage))

// A benchChart is a chart with what it says.
type benchChart struct {
	SVG  template.HTML
	Text string
}

// page writes one file that needs no other.
func (r *benchReport) page(w io.Writer) error {
	return benchTemplate.Execute(w, struct {
		CSS     template.CSS
		Report  *benchReport
		Charts  []benchChart
		Rows    [][]string
		Columns int
	}{template.CSS(chart.CSS), r, r.charts(), r.rows(), len(r.Backends) + 1})
}

// rows are the table for the page: a heading is a row of one cell.
func (r *benchReport) rows() (all [][]string) {
	for _, row := range benchRows {
		cells := []string{row.title}
		for _, b := range r.Backends {
			if row.of != nil {
				cells = append(cells, row.cell(b))
			}
		}
		all = append(all, cells)
	}
	return all
}

func (r *benchReport) charts() []benchChart {
	draw := func(svg, text string) benchChart { return benchChart{template.HTML(svg), text} }
	return []benchChart{
		draw(r.bars("Throughput, one goroutine", "lock + unlock a second", ofFree, workload.Rate),
			"How often one goroutine can take and give back a lock that nobody else wants. More is better."),
		draw(r.bars("Throughput, many goroutines", "lock + unlock a second", ofOwn, workload.Rate),
			"The same with many goroutines of one client, each with a lock of its own."),
		draw(r.bars("Hand-overs between clients", "a second", ofClients, workload.HandOvers),
			"How often one lock that all clients want goes from one of them to another. More is better."),
		draw(r.latency(), "From the call of Unlock to the return of Lock at the next client. A line that stays low to the right has no slow outliers."),
		draw(r.fairness(), "What each client got, in order. A level line at 1 is perfectly fair; 0 is a client that got nothing."),
		draw(r.bars("Idle cost: locks held", "CPU of this process, % of one core", ofHeld, workload.IdleClient),
			"What it takes to keep many locks when nothing else happens. Less is better."),
		draw(r.bars("Idle cost: memory", "bytes a lock", ofHeld, workload.HeapEach),
			"Memory of this process for each lock that is held. Less is better."),
		draw(r.bars("Idle cost: waiting", "CPU of this process, % of one core", ofWaiting, workload.IdleClient),
			"What it takes to wait for a lock that does not come free. Less is better."),
	}
}

func (r *benchReport) bars(title, unit string, of func(*benchResult) *workload.Result, m workload.Metric) string {
	c := chart.BarChart{Title: title, Subtitle: unit}
	for i, b := range r.Backends {
		c.Bars = append(c.Bars, chart.Bar{Label: b.Backend, Value: of(b).Figures[m], Colour: i})
	}
	return c.SVG()
}

// tail stretches the part of hand-overs that are slower: each mark has a tenth
// of them to its right.
func tail(q float64) float64 { return -math.Log10(max(1-q, 1e-5)) }

func (r *benchReport) latency() string {
	c := chart.LineChart{Title: "Hand-over latency between clients", X: "part of all hand-overs that took no longer", Y: "µs", LogY: true}
	for _, q := range []float64{0, .5, .9, .99, .999, .9999} {
		c.XTicks = append(c.XTicks, chart.Tick{At: tail(q), Text: fmt.Sprintf("%g %%", 100*q)})
	}
	for i, b := range r.Backends {
		line := chart.Line{Name: b.Backend, Colour: i}
		for _, p := range b.Clients.Passes {
			line.Points = append(line.Points, chart.Point{X: tail(p.Q), Y: p.US})
		}
		c.Lines = append(c.Lines, line)
	}
	return c.SVG()
}

func (r *benchReport) fairness() string {
	c := chart.LineChart{Title: "Fairness between clients", X: "clients, least served first", Y: "share"}
	for i, b := range r.Backends {
		shares := slices.Sorted(slices.Values(b.Clients.Shares))
		sum := int64(0)
		for _, n := range shares {
			sum += n
		}
		line := chart.Line{Name: b.Backend, Colour: i}
		for j, n := range shares {
			line.Points = append(line.Points, chart.Point{X: float64(j + 1), Y: float64(n*int64(len(shares))) / float64(max(sum, 1))})
		}
		c.Lines = append(c.Lines, line)
	}
	return c.SVG()
}
