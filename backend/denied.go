package backend

import (
	"context"
	"errors"
	"sync/atomic"
)

// mostDenied is how many jobs repeat at a time what one server denies.
const mostDenied = 16

// Denied bounds how much is repeated of what a server denies (ErrAuth). A right may be back in a
// moment, as while passwords change. But a server may also go on granting locks, and deny all that
// ends them. The zero value is ready to use.
type Denied struct{ n atomic.Int32 }

// Retry is [Retry], but for a job that is denied while many others are: that is given up.
func (d *Denied) Retry(ctx context.Context, job func(context.Context) error) {
	among := false
	defer func() {
		if among {
			d.n.Add(-1)
		}
	}()
	Retry(ctx, func(ctx context.Context) error {
		err := job(ctx)
		if among || !errors.Is(err, ErrAuth) {
			return err
		}
		if d.n.Add(1) > mostDenied {
			d.n.Add(-1)
			return nil
		}
		among = true
		return err
	})
}
