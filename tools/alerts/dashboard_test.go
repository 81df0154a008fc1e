package alerts

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/server"
)

var update = flag.Bool("update", false, "write the picture of the dashboard")

// When a server that is scraped every second stops answering, and when the picture ends.
const (
	stops, answers, ends = 20, 40, 60 // seconds
	rateInterval         = "5s"
)

// A dashboard is what this needs of otel/dashboard.json.
type dashboard struct {
	Panels []panel
}

type panel struct {
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, LegendFormat string }
}

// TestDashboardShowsTheExample has two processes of examples/observability run while their
// Redis stops answering for a while. Prometheus' own engine evaluates what the dashboard asks
// for: each panel shows something. With -update it is drawn.
func TestDashboardShowsTheExample(t *testing.T) {
	text, err := os.ReadFile("../../otel/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	scraped := scrapeExample(t)
	var drawn strings.Builder
	width, height := 0, 0
	for _, p := range d.Panels {
		c := chart.LineChart{Title: p.Title, X: fmt.Sprintf("seconds; Redis does not answer from %d to %d", stops, answers), Bare: true}
		for _, target := range p.Targets {
			c.Lines = append(c.Lines, evaluateRange(t, scraped, target.Expr, target.LegendFormat)...)
		}
		shows := false
		for i := range c.Lines {
			c.Lines[i].Colour = i
			shows = shows || hasValue(c.Lines[i])
		}
		if !shows {
			t.Errorf("%s shows nothing", p.Title)
		}
		x, y := p.GridPos.X*73, p.GridPos.Y*46 // a chart is 860 by 360, a panel 12 by 8
		width, height = max(width, x+p.GridPos.W*73), max(height, y+p.GridPos.H*46)
		drawn.WriteString(strings.Replace(c.SVG(), "<svg ", fmt.Sprintf(`<svg x="%d" y="%d" `, x, y), 1))
	}
	if *update {
		all := fmt.Sprintf(`<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="dashboard">%s</svg>`, width, height, &drawn)
		if err := os.WriteFile("../../otel/dashboard.svg", []byte(chart.Standalone(all)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func hasValue(l chart.Line) bool {
	for _, p := range l.Points {
		if p.Y > 0 {
			return true
		}
	}
	return false
}

// scrapeExample runs the example, and returns what Prometheus would have of it.
func scrapeExample(t *testing.T) []promql.Series {
	redis := server.Start(t, server.Redis{})
	binary := filepath.Join(t.TempDir(), "observability")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "../../examples/observability"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var urls []string
	for range 2 {
		urls = append(urls, startExample(t, binary, "redis://"+redis.Addr()))
	}
	all := make(map[string]*promql.Series)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for second := range ends {
		switch second {
		case stops:
			if err := redis.Pause(); err != nil {
				t.Fatal(err)
			}
		case answers:
			if err := redis.Resume(); err != nil {
				t.Fatal(err)
			}
		}
		for i, url := range urls {
			scrapeOnce(t, url, fmt.Sprint("workers-", i+1), int64(second)*1000, all)
		}
		<-ticker.C
	}
	var stored []promql.Series
	for _, s := range all {
		stored = append(stored, *s)
	}
	return stored
}

// startExample returns where the metrics of a process of the example are.
func startExample(t *testing.T, binary, url string) string {
	cmd := exec.Command(binary, "-listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "DLOCK_URL="+url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[strings.LastIndex(line, "http://") : len(line)-1]
}

// scrapeOnce adds what a process says at that time, in milliseconds.
func scrapeOnce(t *testing.T, url, instance string, at int64, all map[string]*promql.Series) {
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "dlock_") {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[space:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		key := instance + line[:space]
		if all[key] == nil {
			metric, err := parser.NewParser(parser.Options{}).ParseMetric(line[:space])
			if err != nil {
				t.Fatal(err)
			}
			all[key] = &promql.Series{Metric: labels.NewBuilder(metric).Set("job", "workers").Set("instance", instance).Labels()}
		}
		all[key].Floats = append(all[key].Floats, promql.FPoint{T: at, F: value})
	}
}

// evaluateRange returns what a query of the dashboard shows, a line for each series.
func evaluateRange(t *testing.T, stored []promql.Series, query, legend string) (lines []chart.Line) {
	query = strings.NewReplacer("$job", ".*", "$__rate_interval", rateInterval).Replace(query)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer engine.Close()
	q, err := engine.NewRangeQuery(t.Context(), queryable(stored), nil, query, time.Unix(0, 0), time.Unix(ends-1, 0), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range matrix {
		line := chart.Line{Name: legend}
		s.Metric.Range(func(l labels.Label) {
			line.Name = strings.ReplaceAll(line.Name, "{{"+l.Name+"}}", l.Value)
		})
		next := int64(0)
		for _, p := range s.Floats {
			for ; next < p.T; next += 1000 {
				line.Points = append(line.Points, chart.Point{X: float64(next / 1000), Y: math.NaN()})
			}
			next = p.T + 1000
			line.Points = append(line.Points, chart.Point{X: float64(p.T / 1000), Y: p.F})
		}
		lines = append(lines, line)
	}
	return lines
}
