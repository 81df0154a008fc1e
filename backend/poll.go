package backend

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff is a growing series of jittered pauses: each is drawn from the
// upper half of a bound that doubles from Min to Max. Its zero value pauses
// for 10 ms to 1 s.
type Backoff struct {
	Min, Max time.Duration
	bound    time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	if b.Min <= 0 {
		b.Min = 10 * time.Millisecond
		if b.Max > 0 {
			b.Min = min(b.Min, b.Max)
		}
	}
	if b.Max < b.Min {
		b.Max = max(b.Min, time.Second)
	}
	b.bound = min(max(2*b.bound, b.Min), b.Max)
	return b.bound/2 + rand.N(b.bound/2+1)
}

// Reset starts the series anew.
func (b *Backoff) Reset() { b.bound = 0 }

// Poll calls try until it reports true or fails, with a pause of b after each
// call that does neither. A receive from wake, which may be nil, cuts a pause
// short and starts the series anew. When ctx ends Poll returns its Cause.
func Poll(ctx context.Context, b Backoff, wake <-chan struct{}, try func(context.Context) (bool, error)) error {
	for {
		done, err := try(ctx)
		if done || err != nil {
			return err
		}
		pause := time.NewTimer(b.Next())
		select {
		case <-pause.C:
		case <-wake:
			b.Reset()
		case <-ctx.Done():
		}
		pause.Stop()
		if ctx.Err() != nil {
			return Cause(ctx)
		}
	}
}

// Jitter returns d, give or take a tenth, so that many clients do not act in
// step.
func Jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(max(d, 0)/5+1)
}
