package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const barWidth = 40

// showProgress draws a bar on a terminal, and nothing elsewhere, until stop
// is called, which wipes it out.
func showProgress(w *os.File, title string, done func() float64) (stop func()) {
	if !term.IsTerminal(int(w.Fd())) {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			fmt.Fprint(w, "\r", bar(title, done()))
			select {
			case <-tick.C:
			case <-quit:
				fmt.Fprint(w, "\r\x1b[K")
				return
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// bar draws the part done, which is from 0 to 1.
func bar(title string, done float64) string {
	full := int(min(max(done, 0), 1) * barWidth)
	return fmt.Sprintf("%-12s  [%s%s] %3d%%", title,
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), full*100/barWidth)
}

// progress is the part of the stock that is gone.
func (s *stockFile) progress(stock int) float64 {
	left, err := s.left()
	if err != nil {
		return 0
	}
	return 1 - float64(left)/float64(stock)
}
