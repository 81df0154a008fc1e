package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/workload"
)

// readmeText is the method, written by hand, with places for figures.
//
//go:embed readme.tmpl
var readmeText string

// write renders the results below dir into texts and charts.
func write(dir string) error {
	files, err := render(dir)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns what has to stand in which file.
func render(dir string) (map[string]string, error) {
	r, err := load(filepath.Join(dir, "results/compare.json"))
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	far, err := loadDistances(filepath.Join(dir, distanceFile))
	if err != nil {
		return nil, err
	}
	apart, err := loadProcesses(filepath.Join(dir, processesFile))
	if err != nil {
		return nil, err
	}
	drawings := r.charts()
	for name, svg := range drawings {
		files["results/"+name+".svg"] = chart.Standalone(svg)
	}
	if files["README.md"], err = r.readme(drawings, &far, apart); err != nil {
		return nil, err
	}
	outer, err := os.ReadFile(filepath.Join(dir, "../README.md"))
	if err != nil {
		return nil, err
	}
	files["../README.md"], err = between(string(outer), "<!-- figures -->", "<!-- end of figures -->", r.headline())
	return files, err
}

// between replaces what stands between two marks.
func between(text, first, last, middle string) (string, error) {
	before, rest, found := strings.Cut(text, first)
	_, after, ended := strings.Cut(rest, last)
	if !found || !ended {
		return "", fmt.Errorf("the marks %q and %q are missing", first, last)
	}
	return before + first + "\n" + middle + last + after, nil
}

func (r *report) readme(drawings map[string]string, far *distanceReport, apart *processesReport) (string, error) {
	t, err := template.New("readme").Funcs(template.FuncMap{
		"table": r.table, "targets": r.targetTable, "notes": r.notes, "versions": r.versionTable, "distances": far.table, "processes": apart.table,
		"chart": func(name, title string) string {
			if drawings[name] == "" {
				return "Not measured in this run: " + title + "."
			}
			return fmt.Sprintf("![%s](results/%s.svg)", title, name)
		},
	}).Parse(readmeText)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = t.Execute(&b, r)
	return b.String(), err
}

// A column is a metric in a table.
type column struct {
	title  string
	metric workload.Metric
}

// A layout is the table of one workload. It is sorted by its first column.
type layout struct {
	columns []column
	upwards bool     // the least first
	floors  []string // by whose first column the others are divided
}

var layouts = map[string]layout{
	"W1": {columns: cyclesColumns, floors: []string{setFloor, etcdFloor, nodeFloor, advisoryFloor}},
	"W2": {columns: cyclesColumns, floors: []string{setFloor, etcdFloor, nodeFloor, advisoryFloor}},
	"W3": {columns: passColumns, floors: []string{listFloor, advisoryFloor}},
	"W4": {columns: passColumns, floors: []string{listFloor, advisoryFloor}},
	"W5": {upwards: true, floors: []string{setFloor, etcdFloor, nodeFloor}, columns: []column{
		{"client CPU %", workload.IdleClient},
		{"server CPU %", workload.IdleServer},
		{"requests/s", workload.IdleRequest},
		{"goroutines", workload.Goroutines},
		{"B/lock", workload.HeapEach},
		{"connections", workload.Connections},
		{"to take all, ms", workload.Setup},
		{"lost", workload.Lost},
	}},
	"W6": {upwards: true, columns: []column{
		{"idle requests/s", workload.IdleRequest},
		{"client CPU %", workload.IdleClient},
		{"server CPU %", workload.IdleServer},
		{"B/waiter", workload.HeapEach},
		{"hand-over after idle µs", workload.IdlePass},
		{"hand-overs/s then", workload.QueuedRate},
		{"connections", workload.Connections},
	}},
}

var cyclesColumns = []column{
	{"lock + unlock/s", workload.Rate},
	{"lock p50 µs", workload.LockP50},
	{"p99 µs", workload.LockP99},
	{"requests", workload.Requests},
	{"allocations", workload.Allocs},
	{"B", workload.AllocBytes},
	{"client CPU µs", workload.ClientCPU},
	{"server CPU µs", workload.ServerCPU},
	{"connections", workload.Connections},
}

var passColumns = []column{
	{"hand-overs/s", workload.HandOvers},
	{"lock + unlock/s", workload.Rate},
	{"hand-over p50 µs", workload.PassP50},
	{"p99 µs", workload.PassP99},
	{"longest wait µs", workload.LockMax},
	{"most/fewest", workload.Fairness},
	{"starved", workload.Starved},
	{"requests", workload.Requests},
	{"client CPU µs", workload.ClientCPU},
	{"violations", workload.Violations},
}

// table is the figures of one workload in Markdown.
func (r *report) table(id string) string {
	if !r.measured(id) {
		return ""
	}
	l := layouts[id]
	var b strings.Builder
	b.WriteString("| |")
	if l.floors != nil {
		b.WriteString(" by its floor |")
	}
	for _, c := range l.columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(l.columns)+min(len(l.floors), 1)) + "\n")
	for _, a := range r.ranked(id) {
		b.WriteString("| " + strong(a) + " |")
		if l.floors != nil {
			b.WriteString(" " + r.byFloor(id, a, l) + " |")
		}
		for _, c := range l.columns {
			b.WriteString(" " + r.cell(id, a.Name, c.metric) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func strong(a about) string {
	if a.Role == ours {
		return "**" + a.Name + "**"
	}
	return a.Name
}

// ranked are those who took part, best first.
func (r *report) ranked(id string) (some []about) {
	l := layouts[id]
	key := func(a about) float64 { return r.figure(id, a.Name, l.columns[0].metric).mid }
	for _, a := range r.About {
		if slices.ContainsFunc(r.Records, func(rec record) bool { return rec.Workload == id && rec.Contender == a.Name }) {
			some = append(some, a)
		}
	}
	slices.SortStableFunc(some, func(a, b about) int {
		order := 1
		if l.upwards {
			order = -1
		}
		switch d := key(b) - key(a); {
		case d > 0:
			return order
		case d < 0:
			return -order
		}
		return 0
	})
	return some
}

func (r *report) byFloor(id string, a about, l layout) string {
	for _, name := range l.floors {
		if r.of(name).Server == a.Server {
			return r.ratio(id, l.columns[0].metric, a.Name, name).String()
		}
	}
	return "–"
}

// sums are metrics of which every one counts, not the middle.
var sums = []workload.Metric{workload.Violations, workload.Lost}

func (r *report) cell(id, name string, m workload.Metric) string {
	if slices.Contains(sums, m) {
		return chart.Number(r.total(id, name, m))
	}
	s := r.figure(id, name, m)
	if s.rounds == 0 {
		if m == workload.Fairness {
			return "∞"
		}
		return "–"
	}
	return chart.Number(s.mid)
}

// String is the middle with the range behind it.
func (s spread) String() string {
	switch {
	case s.rounds == 0:
		return "–"
	case s.rounds == 1:
		return chart.Number(s.mid)
	}
	return fmt.Sprintf("%s (%s–%s)", chart.Number(s.mid), chart.Number(s.low), chart.Number(s.high))
}

// notes says of every contender what it guarantees.
func (r *report) notes() string {
	var b strings.Builder
	b.WriteString("| | server | what it guarantees, and what not |\n|---|---|---|\n")
	for _, a := range r.About {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strong(a), a.Server, a.Note)
	}
	return b.String()
}

func (r *report) versionTable() string {
	var b strings.Builder
	b.WriteString("| | version |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, r.Versions[name])
	}
	return b.String()
}

// Errors are the measurements that failed.
func (r *report) Errors() string {
	err := r.failures()
	if err == nil {
		return "None."
	}
	var b strings.Builder
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		fmt.Fprintln(&b, "-", strings.ReplaceAll(e.Error(), "\n", "; "))
	}
	return b.String()
}
