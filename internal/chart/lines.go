package chart

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A Point is a place on a line.
type Point struct{ X, Y float64 }

// A Line is one series of a line chart. It has gaps where Y is NaN.
type Line struct {
	Name   string
	Points []Point
	Colour int
	Dashed bool
}

// A LineChart shows how figures depend on another.
type LineChart struct {
	Title, Subtitle string
	X, Y            string // what the axes show
	Lines           []Line
	LogX, LogY      bool
	Bare            bool // no marks at points, for lines of many

	// XTicks, if not nil, are the marks of the X axis and their texts.
	XTicks []Tick
}

// A Tick is a mark on an axis.
type Tick struct {
	At   float64
	Text string
}

const (
	lineWidth   = 860.0
	lineHeight  = 360.0
	lineLeft    = 64.0
	lineRight   = 660.0 // names of lines stand beyond
	lineTop     = 64.0
	lineBottom  = 312.0
	nameStep    = 15.0
	nameLetters = 26
)

// SVG draws the chart.
func (l LineChart) SVG() string {
	c := open(lineWidth, lineHeight, l.Title, l.Subtitle)
	var xs, ys []float64
	for _, line := range l.Lines {
		for _, p := range line.Points {
			if !math.IsNaN(p.Y) {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	x := newScale(xs, l.LogX, lineLeft, lineRight)
	y := newScale(ys, l.LogY, lineBottom, lineTop)
	c.axes(l, x, y)
	for _, line := range l.Lines {
		c.line(line, x, y, l.Bare)
	}
	c.names(l.Lines, y)
	return c.close()
}

func (c *canvas) axes(l LineChart, x, y scale) {
	c.text(lineLeft-8, lineTop-10, "soft", l.Y)
	for _, v := range y.ticks() {
		c.rule(lineLeft, y.at(v), lineRight, y.at(v))
		c.text(lineLeft-8, y.at(v)+4, "soft end", Number(v))
	}
	ticks := l.XTicks
	if ticks == nil {
		for _, v := range x.ticks() {
			ticks = append(ticks, Tick{v, Number(v)})
		}
	}
	for _, t := range ticks {
		c.rule(x.at(t.At), lineBottom, x.at(t.At), lineBottom+4)
		c.text(x.at(t.At), lineBottom+18, "soft mid", t.Text)
	}
	c.text((lineLeft+lineRight)/2, lineBottom+38, "soft mid", l.X)
}

func (c *canvas) line(l Line, x, y scale, bare bool) {
	var path strings.Builder
	letter := "M"
	for _, p := range l.Points {
		if math.IsNaN(p.Y) {
			letter = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", letter, x.at(p.X), y.at(p.Y))
		letter = "L"
	}
	if path.Len() == 0 {
		return
	}
	dashes := ""
	if l.Dashed {
		dashes = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(c, `<path class="line" stroke="%s"%s d="%s"/>`, colour(l.Colour), dashes, path.String())
	for _, p := range l.Points {
		if bare || math.IsNaN(p.Y) {
			continue
		}
		fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s">%s</circle>`,
			x.at(p.X), y.at(p.Y), colour(l.Colour), hint(fmt.Sprintf("%s at %s: %s", l.Name, Number(p.X), Number(p.Y))))
	}
}

// names writes the name of each line at its end, none over another.
func (c *canvas) names(lines []Line, y scale) {
	type label struct {
		Line
		at float64
	}
	var labels []label
	for _, l := range lines {
		for _, p := range slices.Backward(l.Points) {
			if !math.IsNaN(p.Y) {
				labels = append(labels, label{l, y.at(p.Y)})
				break
			}
		}
	}
	slices.SortStableFunc(labels, func(a, b label) int { return int(a.at*10 - b.at*10) })
	for i := range labels {
		if i > 0 {
			labels[i].at = max(labels[i].at, labels[i-1].at+nameStep)
		}
	}
	for i := len(labels) - 1; i >= 0; i-- { // back from the bottom, where there is no room
		limit := lineBottom
		if i < len(labels)-1 {
			limit = labels[i+1].at - nameStep
		}
		labels[i].at = min(labels[i].at, limit)
	}
	for _, l := range labels {
		fmt.Fprintf(c, `<circle cx="%g" cy="%.1f" r="4" fill="%s"/>`, lineRight+16, l.at-4, colour(l.Colour))
		fmt.Fprintf(c, `<text x="%g" y="%.1f">%s</text>`, lineRight+26, l.at, html.EscapeString(shortened(l.Name, nameLetters)))
	}
}
