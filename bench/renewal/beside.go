package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

const besideTTL = 6 * time.Second

// beside takes one lock again and again, alone and beside many that are held.
func beside(p *place, n int) error {
	c, err := p.open(dlock.Options{TTL: besideTTL, Logger: quiet})
	if err != nil {
		return err
	}
	defer part(c)
	fmt.Printf("\nLock and Unlock on %s beside locks that are held, TTL %v.\n\n", p.name, besideTTL)
	fmt.Println("| held | p50, ms | p99, ms | p99.9, ms | the longest, ms |")
	fmt.Println("|---:|---:|---:|---:|---:|")
	cycles(c, 0)
	failed := take(c, n, func(int, *dlock.Lease) {})
	runtime.GC()
	cycles(c, n-failed)
	return nil
}

func cycles(c *dlock.Client, held int) {
	m := c.Mutex("another")
	var took []time.Duration
	for end := time.Now().Add(besideTTL + besideTTL/3); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		start := time.Now()
		l, err := m.Lock(background)
		if err == nil {
			err = l.Unlock(background)
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	n := len(took)
	fmt.Printf("| %d | %.3f | %.3f | %.3f | %.3f |\n", held, ms(took[n/2]), ms(took[n*99/100]), ms(took[n*999/1000]), ms(took[n-1]))
}
