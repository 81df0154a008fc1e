package quorum_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// A takenNode has something else where the lock would be.
type takenNode struct{ *memory.Backend }

func (takenNode) Acquire(context.Context, backend.Request) (*backend.Hold, error) {
	return nil, errTaken
}

func (takenNode) Vote(context.Context, backend.Request, backend.Ballot) (*backend.Hold, error) {
	return nil, errTaken
}

var errTaken = backend.Fail(backend.ErrConflict, errors.New("something else"))

// Where some nodes have something else than the lock, nobody hears of it as long as the others are enough.
// Else whoever asks is told so at once.
func TestNodesWithSomethingElse(t *testing.T) {
	for taken := 1; taken <= 3; taken++ {
		ripe(t, 3, func(t *testing.T, s nodes) {
			var all []backend.Backend
			for i, server := range s {
				if node := memory.New(server); i < taken {
					all = append(all, takenNode{node})
				} else {
					all = append(all, node)
				}
			}
			m := over(t, all, nil).RWMutex("x")
			for _, ask := range []func(context.Context) (*dlock.Lease, error){m.Lock, m.TryLock, m.RLock, m.TryRLock} {
				began := time.Now()
				l, err := ask(t.Context())
				if took := time.Since(began); took > 200*time.Millisecond {
					t.Errorf("%d of 3: it took %v", taken, took)
				}
				if taken > 1 {
					is(t, err, dlock.ErrConflict)
					continue
				}
				ok(t, err)
				time.Sleep(2 * ttl)
				ok(t, l.Unlock(t.Context()))
			}
		})
	}
}
