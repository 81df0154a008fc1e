package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// A result is what came of one round.
type result struct {
	title    string
	locked   bool
	sold     int
	oversold int
	perClerk []int
	longest  time.Duration // wait for the lock
	took     time.Duration
}

// tally counts the sales in the books of all workers.
func (d *demo) tally(s *stockFile, title string, locked bool, took time.Duration) (*result, error) {
	r := &result{title: title, locked: locked, took: took}
	for number := range d.workers {
		sold, longest, err := s.readBook(number)
		if err != nil {
			return nil, err
		}
		r.sold += sold
		r.perClerk = append(r.perClerk, sold)
		r.longest = max(r.longest, longest)
	}
	r.oversold = r.sold - d.stock
	return r, nil
}

func printTable(w io.Writer, results ...*result) {
	const row = "%-12s  %6v  %8v  %7v  %12v  %6v  %6v\n"
	fmt.Fprintf(w, row, "", "sold", "oversold", "locks/s", "longest wait", "fewest", "most")
	for _, r := range results {
		rate, wait := "-", "-"
		if r.locked {
			rate = fmt.Sprintf("%.0f", float64(r.sold)/r.took.Seconds())
			wait = r.longest.Round(10 * time.Microsecond).String()
		}
		fmt.Fprintf(w, row, r.title, r.sold, r.oversold, rate, wait, slices.Min(r.perClerk), slices.Max(r.perClerk))
	}
	fmt.Fprintln(w, "fewest and most: sales of one process")
}
