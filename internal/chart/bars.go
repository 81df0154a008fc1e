package chart

import "fmt"

// A Bar is one line of a bar chart.
type Bar struct {
	Label string
	Value float64

	// Low and High are the least and greatest of what Value is the middle of.
	// Both zero draws no range.
	Low, High float64

	// Colour is a number of the palette; negative is the quiet one.
	Colour int

	// Note stands behind the value, such as why there is none.
	Note string
}

// A BarChart compares things by one figure. Bars are drawn in their order.
type BarChart struct {
	Title, Subtitle string
	Bars            []Bar
	Log             bool // a logarithmic axis, for figures that are worlds apart
}

const (
	barStep    = 24.0
	barHeight  = 14.0
	barTop     = 48.0
	barLabels  = 250.0
	barLetters = 38
	barWidth   = 860.0
	barValues  = 190.0 // to the right, for the values
)

// SVG draws the chart.
func (b BarChart) SVG() string {
	c := open(barWidth, barTop+barStep*float64(len(b.Bars))+8, b.Title, b.Subtitle)
	var values []float64
	for _, bar := range b.Bars {
		values = append(values, bar.Value, bar.High)
	}
	s := newScale(values, b.Log, barLabels, barWidth-barValues)
	for i, bar := range b.Bars {
		c.bar(bar, s, barTop+barStep*float64(i))
	}
	c.rule(barLabels, barTop-2, barLabels, barTop+barStep*float64(len(b.Bars)))
	return c.close()
}

func (c *canvas) bar(b Bar, s scale, y float64) {
	c.text(barLabels-8, y+barHeight-3, "end", shortened(b.Label, barLetters))
	end := s.from
	if b.Value > 0 {
		end = max(s.at(b.Value), s.from+1)
		fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%g" rx="2" fill="%s">%s</rect>`,
			s.from, y, end-s.from, barHeight, colour(b.Colour), hint(b.Label+": "+Number(b.Value)))
	}
	if b.High > b.Low {
		low, high := s.at(b.Low), s.at(b.High)
		fmt.Fprintf(c, `<path class="range" d="M%.1f %.1fL%.1f %.1f"/>`, low, y+barHeight/2, high, y+barHeight/2)
		end = max(end, high)
	}
	label := Number(b.Value)
	if b.Note != "" {
		label += "  " + b.Note
	}
	c.text(end+6, y+barHeight-3, "soft", label)
}
