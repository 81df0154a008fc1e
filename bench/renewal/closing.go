package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/dlock-go/dlock"
)

// closing closes a client that holds many locks.
func closing(p *place, n int) error {
	c, err := p.open(dlock.Options{TTL: time.Minute, Logger: quiet})
	if err != nil {
		return err
	}
	failed := take(c, n, func(int, *dlock.Lease) {})
	stop, peak := make(chan struct{}), make(chan int)
	go func() {
		most := 0
		for {
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(2 * time.Millisecond):
				most = max(most, runtime.NumGoroutine())
			}
		}
	}()
	start := time.Now()
	err = c.Close(background)
	took := time.Since(start)
	close(stop)
	fmt.Printf("\nClose of %d locks on %s: %v with up to %d goroutines, error %v.\n", n-failed, p.name, took.Round(time.Millisecond), <-peak, err)
	return nil
}
