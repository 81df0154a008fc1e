package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// unlockBesideSilence has a node fall silent, and returns the error of Unlock.
func unlockBesideSilence(t *testing.T, s *memory.Server, l *dlock.Lease) error {
	s.Freeze()
	defer s.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return l.Unlock(ctx)
}

// A node grants a lock late, to a hold that has been downgraded meanwhile, and has that back. Another
// falls silent: Unlock goes by the two that have no part of the hold any more.
func TestUnlockBesideAGrantThatWentBack(t *testing.T) {
	ripe(t, 3, func(t *testing.T, s nodes) {
		c, late := s.withLateThird(t, memory.New(s[1]))
		l, err := c.RWMutex("x").Lock(t.Context())
		ok(t, err)
		ok(t, l.Downgrade(t.Context()))
		time.Sleep(late.late)
		synctest.Wait() // the grant has come, and gone back
		ok(t, unlockBesideSilence(t, s[1], l))
	})
}

// A lastVoter dies with its first vote: the node grants, and its client does not hear of that.
type lastVoter struct{ *deadNode }

func (n lastVoter) Vote(ctx context.Context, r backend.Request, b backend.Ballot) (*backend.Hold, error) {
	if _, err := n.deadNode.Vote(ctx, r, b); err != nil {
		return nil, err
	}
	n.dead.Store(true)
	return nil, errDead
}

// A node grants a lock, and its answer is lost. Then another falls silent. Unlock does not say that all
// is well as long as these two may have the hold: for a lease after the vote.
func TestUnlockBesideAVoteWithoutAnAnswer(t *testing.T) {
	for after, want := range map[time.Duration]error{0: dlock.ErrUnavailable, 2 * ttl: nil} {
		ripe(t, 3, func(t *testing.T, s nodes) {
			c := over(t, []backend.Backend{memory.New(s[0]), memory.New(s[1]), lastVoter{&deadNode{Backend: memory.New(s[2])}}}, nil)
			l, err := c.Mutex("x").Lock(t.Context())
			ok(t, err)
			synctest.Wait() // the third has granted
			time.Sleep(after)
			if err := unlockBesideSilence(t, s[1], l); !errors.Is(err, want) {
				t.Errorf("%v after the vote: %v, want %v", after, err, want)
			}
		})
	}
}
