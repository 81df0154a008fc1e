package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

func cutAll(p *place, most int, ttls string) error {
	fmt.Printf("\nA client is cut off from %s; another takes locks whose context lives on after their lease.\n\n", p.name)
	fmt.Println("| locks | TTL | held when cut off | contexts seen alive after the lease | the longest, ms | granted to another beside a live context |")
	fmt.Println("|---:|---:|---:|---:|---:|---:|")
	for text := range strings.SplitSeq(ttls, ",") {
		ttl, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		for _, n := range []int{1_000, 20_000, 100_000} {
			if n > most {
				continue
			}
			if err := cut(p, n, ttl); err != nil {
				return err
			}
		}
	}
	return nil
}

// A watched is one lock of the client that is cut off.
type watched struct {
	ctx    context.Context
	proven atomic.Int64 // since start: the server cannot have proven it later
}

func cut(p *place, n int, ttl time.Duration) error {
	start, all := time.Now(), make([]watched, n)
	c, stop, err := p.near(dlock.Options{TTL: ttl, Logger: quiet, Hooks: dlock.Hooks{Renewed: func(e dlock.RenewedEvent) {
		i, _ := strconv.Atoi(e.Name)
		all[i].proven.Store(int64(time.Since(start)))
	}}})
	if err != nil {
		return err
	}
	defer part(c)
	take(c, n, func(i int, l *dlock.Lease) {
		all[i].proven.Store(int64(time.Since(start)))
		all[i].ctx = l.Context(background)
	})
	time.Sleep(ttl * 3 / 2)
	held := 0
	for i := range all {
		if all[i].ctx != nil && all[i].ctx.Err() == nil {
			held++
		}
	}
	stop()
	other, err := p.open(dlock.Options{TTL: time.Minute, Logger: quiet})
	if err != nil {
		return err
	}
	defer part(other)
	late, granted, worst := 0, 0, time.Duration(0)
	for end := time.Now().Add(ttl + ttl/2 + time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i := range all {
			w := &all[i]
			if w.ctx == nil || w.ctx.Err() != nil {
				continue
			}
			over := time.Since(start) - time.Duration(w.proven.Load()) - ttl
			if over < 0 || w.ctx.Err() != nil {
				continue
			}
			late++
			worst = max(worst, over)
			if l, err := other.Mutex(strconv.Itoa(i)).TryLock(background); err == nil {
				if w.ctx.Err() == nil && l.Err() == nil {
					granted++
				}
			}
		}
	}
	fmt.Printf("| %d | %v | %d | %d | %.0f | %d |\n", n, ttl, held, late, ms(worst), granted)
	return nil
}
