package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

func besideAll(p *place, n, turns int, ttls string) error {
	fmt.Printf("\nLock and Unlock on %s, alone and beside locks that are held, in %d turns.\n\n", p.name, turns)
	fmt.Println("| TTL | held | cycles | p50, ms | p99, ms | p99.9, ms | the longest, ms | p99 by that beside none |")
	fmt.Println("|---:|---:|---:|---:|---:|---:|---:|---:|")
	for text := range strings.SplitSeq(ttls, ",") {
		ttl, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		var alone, among []time.Duration
		for range turns {
			if err := beside(p, n, ttl, &alone, &among); err != nil {
				return err
			}
		}
		row(ttl, 0, alone, alone)
		row(ttl, n, among, alone)
	}
	return nil
}

// beside takes one lock again and again, alone and beside n that are held, as long as one
// period of their renewals. They have been held for a lease before, so that these have
// spread.
func beside(p *place, n int, ttl time.Duration, alone, among *[]time.Duration) error {
	c, err := p.open(dlock.Options{TTL: ttl, Logger: quiet})
	if err != nil {
		return err
	}
	defer part(c)
	cycle(c, 100)
	*alone = append(*alone, cycles(c, 5*time.Second)...)
	if failed := take(c, n, func(int, *dlock.Lease) {}); failed > 0 {
		return fmt.Errorf("%d of %d locks could not be taken", failed, n)
	}
	runtime.GC()
	time.Sleep(ttl)
	*among = append(*among, cycles(c, max(ttl/3, 5*time.Second))...)
	return nil
}

func cycle(c *dlock.Client, n int) (took []time.Duration, err error) {
	m := c.Mutex("another")
	for range n {
		start := time.Now()
		l, err := m.Lock(background)
		if err != nil {
			return took, err
		}
		if err := l.Unlock(background); err != nil {
			return took, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

func cycles(c *dlock.Client, lasts time.Duration) (took []time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		one, err := cycle(c, 1)
		if err != nil {
			fmt.Println(err)
		}
		took = append(took, one...)
	}
	return took
}

func row(ttl time.Duration, held int, took, alone []time.Duration) {
	slices.Sort(took)
	slices.Sort(alone)
	at := func(part int) time.Duration { return took[len(took)*part/1000] }
	fmt.Printf("| %v | %d | %d | %.3f | %.3f | %.3f | %.3f | %.1f |\n", ttl, held, len(took), ms(at(500)), ms(at(990)), ms(at(999)),
		ms(took[len(took)-1]), ms(at(990))/ms(alone[len(alone)*990/1000]))
}
