package main

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// A table is text in columns. Its first row has their titles.
type table struct {
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// gap is between two columns.
const gap = 2

// write prints the table. All cells but those of the last column are padded.
func (t *table) write(w io.Writer) error {
	widths := t.widths()
	var b strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]+gap-cells(cell)))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) widths() []int {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], cells(cell))
		}
	}
	return widths
}

// fit makes the table fit into lines of so many cells. It shortens the columns of least,
// down to that width, and removes columns in the order of dispensable as long as that is
// not enough.
func (t *table) fit(line int, least map[string]int, dispensable ...string) {
	for t.leastWidth(least) > line && len(dispensable) > 0 {
		t.remove(dispensable[0])
		dispensable = dispensable[1:]
	}
	widths := t.widths()
	surplus := gap*(len(widths)-1) - line
	for _, w := range widths {
		surplus += w
	}
	for ; surplus > 0; surplus-- {
		most := -1 // the widest of those that can be shortened
		for i, title := range t.rows[0] {
			if l, ok := least[title]; ok && widths[i] > l && (most < 0 || widths[i] > widths[most]) {
				most = i
			}
		}
		if most < 0 {
			break
		}
		widths[most]--
	}
	for _, row := range t.rows {
		for i := range row {
			row[i] = shortened(row[i], widths[i])
		}
	}
}

// leastWidth is what the table needs if its columns are shortened down to least.
func (t *table) leastWidth(least map[string]int) int {
	sum := -gap
	for i, w := range t.widths() {
		if l, ok := least[t.rows[0][i]]; ok {
			w = min(w, l)
		}
		sum += w + gap
	}
	return sum
}

func (t *table) remove(title string) {
	i := slices.Index(t.rows[0], title)
	for n := range t.rows {
		t.rows[n] = slices.Delete(t.rows[n], i, i+1)
	}
}

// shortened leaves out of the middle of text what is more than most cells: names and
// labels differ at the end as well as at the beginning.
func shortened(text string, most int) string {
	if cells(text) <= most {
		return text
	}
	tail := []rune(text)
	for room := most / 2; cells(string(tail)) > room; {
		tail = tail[1:]
	}
	return cut(text, most-1-cells(string(tail))) + "…" + string(tail)
}

// cut is the beginning of text, in so many cells at most.
func cut(text string, most int) string {
	used := 0
	for i, r := range text {
		if used += cellsOf(r); used > most {
			return text[:i]
		}
	}
	return text
}

// cells is how many columns of a terminal a printable text takes.
func cells(text string) (n int) {
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}

func cellsOf(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}
