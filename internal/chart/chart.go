// Package chart draws charts as SVG that is read on light and on dark pages.
//
// A chart is a drawing for one question. Its colours come from [CSS], which a
// page includes once; [Standalone] makes a chart a file of its own.
package chart

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// CSS holds the colours of all charts, on both kinds of page.
const CSS = `
.chart{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;--ink:#1f2328;--soft:#59636e;--rule:#d1d9e0;--other:#8c959f;
--c0:#2a6fdb;--c1:#d4600c;--c2:#0f8f7a;--c3:#7b57d1;--c4:#c4364c;--c5:#967200;--c6:#4d7c1f;--c7:#a3418f}
@media (prefers-color-scheme:dark){.chart{--ink:#e6edf3;--soft:#9aa4af;--rule:#3a424c;--other:#78828d;
--c0:#6ca6ff;--c1:#f5924a;--c2:#3fc9b0;--c3:#b197f5;--c4:#f27d8c;--c5:#dcb43c;--c6:#97c95c;--c7:#e08bcf}}
.chart text{fill:var(--ink)}.chart .soft{fill:var(--soft)}.chart .title{font-size:14px;font-weight:600}
.chart .end{text-anchor:end}.chart .mid{text-anchor:middle}
.chart .rule{stroke:var(--rule);stroke-width:1;fill:none}
.chart .line{fill:none;stroke-width:2;stroke-linejoin:round}
.chart .range{stroke:var(--ink);stroke-width:1.5;opacity:.55}
`

// palette is how many colours there are for series. More begin again.
const palette = 8

func colour(n int) string {
	if n < 0 {
		return "var(--other)"
	}
	return fmt.Sprintf("var(--c%d)", n%palette)
}

// Standalone is a chart as a file, with its colours.
func Standalone(svg string) string {
	head, body, _ := strings.Cut(svg, ">")
	return head + "><style>" + CSS + "</style>" + body + "\n"
}

// A canvas collects the elements of one chart.
type canvas struct {
	strings.Builder
	width, height float64
}

// open begins a chart with its title, which is what it is called to those who
// cannot see it too.
func open(width, height float64, title, subtitle string) *canvas {
	c := &canvas{width: width, height: height}
	fmt.Fprintf(c, `<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-label="%s">`,
		width, height, width, height, html.EscapeString(title))
	c.text(0, 16, "title", title)
	c.text(0, 34, "soft", subtitle)
	return c
}

func (c *canvas) close() string {
	c.WriteString("</svg>")
	return c.String()
}

func (c *canvas) text(x, y float64, class, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

func (c *canvas) rule(x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<path class="rule" d="M%.1f %.1fL%.1f %.1f"/>`, x1, y1, x2, y2)
}

// shortened is text in at most so many letters.
func shortened(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}

// hint is what the element before it says to a pointer that rests on it.
func hint(text string) string { return "<title>" + html.EscapeString(text) + "</title>" }

// A scale maps values to places.
type scale struct {
	low, high float64 // of the values
	from, to  float64 // of the places
	log       bool
}

// newScale makes room for all values. A logarithmic one leaves out those that
// are not positive, and begins and ends at a power of ten.
func newScale(values []float64, log bool, from, to float64) scale {
	s := scale{from: from, to: to, log: log}
	if !log {
		s.high = cmp.Or(slices.Max(append(values, 0)), 1)
		return s
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > high {
		low, high = 1, 10
	}
	s.low = math.Pow(10, math.Floor(math.Log10(low)))
	s.high = max(math.Pow(10, math.Ceil(math.Log10(high))), s.low*10)
	return s
}

// at is the place of v. What is below a logarithmic scale is at its beginning.
func (s scale) at(v float64) float64 {
	part := (v - s.low) / (s.high - s.low)
	if s.log {
		part = math.Log10(max(v, s.low)/s.low) / math.Log10(s.high/s.low)
	}
	return s.from + part*(s.to-s.from)
}

// ticks are the values to mark: powers of ten, or about five round numbers.
func (s scale) ticks() (out []float64) {
	if s.log {
		for v := s.low; v <= s.high*1.001; v *= 10 {
			out = append(out, v)
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/4)))
	for _, factor := range []float64{5, 2} {
		if s.high/(step*factor) >= 4 {
			step *= factor
			break
		}
	}
	for v := s.low; v <= s.high; v += step {
		out = append(out, v)
	}
	return out
}

// Number writes v with three digits that count, and thousands apart.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "∞"
	case a == 0:
		return "0"
	case a >= 99.95:
		return thousands(math.Round(v))
	case a >= 9.995:
		return trim(fmt.Sprintf("%.1f", v))
	case a >= 0.9995:
		return trim(fmt.Sprintf("%.2f", v))
	case a >= 0.00095:
		return trim(fmt.Sprintf("%.3f", v))
	}
	return fmt.Sprintf("%.1g", v)
}

func trim(s string) string { return strings.TrimRight(strings.TrimRight(s, "0"), ".") }

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
