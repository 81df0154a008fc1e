package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// farewell bounds Close on a server that does not answer.
const farewell = 5 * time.Second

// parting is how long Close waits for subscriptions to end when its context is done.
const parting = 250 * time.Millisecond

// releaseRest gives back the holds that nobody has released. The error names those
// of which it is not known whether the server still has them.
func (b *Backend) releaseRest(ctx context.Context) error {
	var mu sync.Mutex
	var open []string
	var last error
	var all []release
	for _, s := range b.hub.held() {
		all = append(all, release{b: b, state: s, began: time.Now(), ttl: s.request.TTL})
	}
	b.releaseMany(ctx, all, func(i int, err error) {
		if err != nil && !errors.Is(err, backend.ErrLost) {
			mu.Lock()
			defer mu.Unlock()
			open, last = append(open, fmt.Sprintf("%q", all[i].state.request.Name)), err
		}
	})
	if last == nil {
		return nil
	}
	names := open[:min(len(open), 10)]
	text := "no answer to the release of " + strings.Join(names, ", ")
	if rest := len(open) - len(names); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return backend.Fail(backend.ErrUnavailable, errors.Join(errors.New(text), last))
}
