package zk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/backend"
)

// connecting is what Connect learns of servers that cannot be reached. The driver tries
// them for ever and tells nobody why.
type connecting struct {
	mu        sync.Mutex
	over      bool             // Connect has returned
	unreached map[string]error // by server
}

// connect makes the first session. It fails as soon as every server has refused.
func (b *Backend) connect(ctx context.Context) error {
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	_, err := query(ctx, b, func(s *session) (none struct{}, err error) { return none, s.prepareRoot() })
	c := &b.connecting
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if len(c.unreached) == len(b.servers) && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, c.reason())
	}
	return err
}

// reason is called with c.mu held.
func (c *connecting) reason() error {
	var all []error
	for _, addr := range slices.Sorted(maps.Keys(c.unreached)) {
		all = append(all, c.unreached[addr])
	}
	return backend.Join(all...)
}

// noteUnreached ends the session, while Connect waits for it, if no server can be reached
// and none was merely slow.
func (s *session) noteUnreached(addr string, err error) {
	c := &s.backend.connecting
	c.mu.Lock()
	if c.unreached == nil {
		c.unreached = make(map[string]error)
	}
	c.unreached[addr] = err
	end := !c.over && len(c.unreached) == len(s.backend.servers)
	for _, err := range c.unreached {
		var slow interface{ Timeout() bool }
		end = end && (!errors.As(err, &slow) || !slow.Timeout())
	}
	reason := c.reason()
	c.mu.Unlock()
	if end {
		s.end(backend.Fail(backend.ErrUnavailable, reason))
	}
}
