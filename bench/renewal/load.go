package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/chart"
)

const (
	loadTTL  = time.Second
	loadTime = 8 * time.Second // for which locks are asked for
	loadRest = 2 * time.Second // for which they are only held
	tick     = 100 * time.Millisecond
)

// loadAll asks for as many locks as keep the machine busy with their renewals, and
// for several times as many.
func loadAll(p *place, rate int, factors, drawing string) error {
	fmt.Printf("\nMore locks are asked for on %s than can be renewed: %d renewals a second, TTL %v.\n\n", p.name, rate, loadTTL)
	fmt.Println("| times | locks wanted | asked for in time | had | refused | lost | had at the end | renewals a second | least left, ms |")
	fmt.Println("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	c := chart.LineChart{
		Title: "What is left of leases when they are renewed", Subtitle: "the least in each tenth of a second; leases of 1 s",
		X: "seconds", Y: "left, ms",
	}
	for i, text := range strings.Split(factors, ",") {
		times, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		points, err := load(p, times, times*rate*int(loadTTL/time.Millisecond)/3000)
		if err != nil {
			return err
		}
		c.Lines = append(c.Lines, chart.Line{Name: fmt.Sprint(times, " times"), Points: points, Colour: i})
	}
	if drawing == "" {
		return nil
	}
	return os.WriteFile(drawing, []byte(chart.Standalone(c.SVG())), 0o644)
}

func load(p *place, times, n int) (points []chart.Point, err error) {
	var lost, renewed, all, least atomic.Int64
	lowest := loadTTL
	least.Store(int64(loadTTL))
	c, err := p.open(dlock.Options{TTL: loadTTL, Logger: quiet, Hooks: dlock.Hooks{
		Lost: func(dlock.LostEvent) { lost.Add(1) },
		Renewed: func(e dlock.RenewedEvent) {
			renewed.Add(1)
			for old := least.Load(); int64(e.Left) < old && !least.CompareAndSwap(old, int64(e.Left)); {
				old = least.Load()
			}
		},
	}})
	if err != nil {
		return nil, err
	}
	defer part(c)
	start, stop := time.Now(), make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for t := time.NewTicker(tick); ; {
			select {
			case <-stop:
				return
			case <-t.C:
			}
			n, left := renewed.Swap(0), time.Duration(least.Swap(int64(loadTTL)))
			all.Add(n)
			if n == 0 {
				left = 0
				if time.Since(start) < loadTTL/2 {
					continue // nothing is due yet
				}
			}
			lowest = min(lowest, left)
			points = append(points, chart.Point{X: time.Since(start).Seconds(), Y: ms(left)})
		}
	})
	var had sync.Map
	asked, refused := takeUntil(start.Add(loadTime), c, n, func(i int, l *dlock.Lease) { had.Store(i, l) })
	taken := asked - refused
	time.Sleep(time.Until(start.Add(loadTime + loadRest)))
	close(stop)
	watch.Wait()
	end := 0
	had.Range(func(_, l any) bool {
		if l.(*dlock.Lease).Err() == nil {
			end++
		}
		return true
	})
	fmt.Printf("| %d | %d | %d | %d | %d | %d | %d | %.0f | %.0f |\n", times, n, asked, taken, refused, taken-end, end,
		float64(all.Load())/time.Since(start).Seconds(), ms(lowest))
	return points, nil
}
