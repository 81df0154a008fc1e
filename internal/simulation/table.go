package simulation

import (
	"fmt"
	"slices"
	"strings"
)

const (
	columnWidth = 34
	mostLines   = 300
)

// Table prints the history as far as it led to the first violation, with a column for
// the faults, the servers and each client.
func (r *Result) Table(clients int) string {
	var b strings.Builder
	heads := []string{"faults", "servers"}
	for i := range clients {
		heads = append(heads, fmt.Sprintf("c%d", i))
	}
	line(&b, "seconds", heads)
	events := r.History
	if i := slices.IndexFunc(events, func(e Event) bool { return strings.HasPrefix(e.Text, "VIOLATION") }); i >= 0 {
		events = events[:i+1]
	}
	if n := len(events) - mostLines; n > 0 {
		events = events[n:]
	}
	for _, e := range events {
		cells := make([]string, len(heads))
		cells[e.Party+2] = e.Text
		line(&b, fmt.Sprintf("%.4f", e.At.Seconds()), cells)
	}
	return b.String()
}

func line(b *strings.Builder, at string, cells []string) {
	for first := true; first || slices.ContainsFunc(cells, func(c string) bool { return c != "" }); first = false {
		fmt.Fprintf(b, "%9s", at)
		at = ""
		for i, c := range cells {
			part := c[:min(len(c), columnWidth)]
			cells[i] = c[len(part):]
			fmt.Fprintf(b, " | %-*s", columnWidth, part)
		}
		b.WriteString("\n")
	}
}
