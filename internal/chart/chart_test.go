package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

const nasty = `<script>"&'</script>`

// wellFormed checks that svg is XML with all text and nothing but text from outside.
func wellFormed(t *testing.T, svg string, texts ...string) {
	t.Helper()
	var all strings.Builder
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "script" {
				t.Error("a label has become an element")
			}
		case xml.CharData:
			all.Write(token)
			all.WriteByte('\n')
		}
	}
	for _, text := range texts {
		if !strings.Contains(all.String(), text) {
			t.Errorf("no %q in %q", text, all.String())
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("a place is no number in %s", svg)
	}
}

func TestBars(t *testing.T) {
	for _, log := range []bool{false, true} {
		chart := BarChart{Title: nasty, Subtitle: "per second", Log: log, Bars: []Bar{
			{Label: "dlock", Value: 12345.6, Low: 10000, High: 15000},
			{Label: nasty, Value: 0, Note: "never", Colour: -1},
			{Label: "third", Value: 3, Colour: 11},
		}}
		wellFormed(t, chart.SVG(), nasty, "12,346", "never", "third")
		wellFormed(t, Standalone(chart.SVG()), "prefers-color-scheme")
	}
	wellFormed(t, BarChart{Title: "nothing", Log: true}.SVG(), "nothing")
}

func TestLines(t *testing.T) {
	for _, log := range []bool{false, true} {
		chart := LineChart{Title: "growth", X: "waiters", Y: "rate", LogX: log, LogY: log, Lines: []Line{
			{Name: nasty, Points: []Point{{1, 10}, {10, 100}, {100, 0}}},
			{Name: "same end", Points: []Point{{1, 10}, {100, 0}}, Dashed: true},
			{Name: "empty"},
		}}
		wellFormed(t, chart.SVG(), nasty, "same end", "waiters", "rate")
	}
	ticks := []Tick{{.5, "middle"}, {1, "all"}}
	wellFormed(t, LineChart{XTicks: ticks, Lines: []Line{{Points: []Point{{0, 1}, {1, 2}}}}}.SVG(), "middle", "all")
}

// A line has gaps where there is no value, and may have no marks.
func TestGaps(t *testing.T) {
	none := math.NaN()
	svg := LineChart{Bare: true, Lines: []Line{
		{Name: "gaps", Points: []Point{{0, none}, {1, 2}, {2, 3}, {3, none}, {4, 5}, {5, none}}},
		{Name: "nothing", Points: []Point{{0, none}}},
	}}.SVG()
	wellFormed(t, svg, "gaps")
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "nothing") || strings.Contains(svg, "<title>") {
		t.Errorf("drawn as %s", svg)
	}
	_, path, _ := strings.Cut(svg, `class="line"`)
	path, _, _ = strings.Cut(path, "/>")
	if strings.Count(path, "M") != 2 || strings.Count(path, "L") != 1 {
		t.Errorf("the line is %s", path)
	}
}

// Names of lines that end in one place do not cover each other.
func TestNamesKeepTheirDistance(t *testing.T) {
	c := &canvas{}
	var lines []Line
	for range 6 {
		lines = append(lines, Line{Name: "n", Points: []Point{{1, 0}}})
	}
	c.names(lines, newScale([]float64{0, 1}, false, lineBottom, lineTop))
	places := map[string]bool{}
	for _, part := range strings.Split(c.String(), "<text ")[1:] {
		places[part[:strings.Index(part, ">")]] = true
	}
	if len(places) != len(lines) {
		t.Errorf("%d places for %d names", len(places), len(lines))
	}
}

func TestScale(t *testing.T) {
	s := newScale([]float64{3, 0, 4000}, true, 0, 100)
	if s.low != 1 || s.high != 10000 || math.Abs(s.at(100)-50) > 1e-9 || s.at(0) != 0 {
		t.Errorf("%+v, 100 is at %v", s, s.at(100))
	}
	if n := len(newScale([]float64{1e-9, 37}, false, 0, 100).ticks()); n < 4 || n > 10 {
		t.Errorf("%d ticks", n)
	}
}

func TestLongNamesAreShortened(t *testing.T) {
	long := strings.Repeat("ä", 100)
	wellFormed(t, BarChart{Bars: []Bar{{Label: long}}}.SVG(), strings.Repeat("ä", barLetters-1)+"…\n")
	wellFormed(t, LineChart{Lines: []Line{{Name: long, Points: []Point{{1, 1}}}}}.SVG(), strings.Repeat("ä", nameLetters-1)+"…\n")
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 1.234: "1.23", 12.34: "12.3", 99.99: "100", 123.4: "123", 1234567: "1,234,567", -1234: "-1,234",
		0.5: "0.5", 0.01234: "0.012", 0.0001: "0.0001", math.Inf(1): "∞",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
