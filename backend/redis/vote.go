package redis

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// bootKey says since when the server has kept its data. No lock has that key.
const bootKey = prefix + "boot"

// Vote implements backend.TokenRegister. A cluster is no single server: there
// it is ErrUnsupported.
func (b *Backend) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	if b.nodes != nil {
		return nil, backend.ErrUnsupported
	}
	return b.acquire(ctx, r, &v)
}

// RaiseToken implements backend.TokenRegister.
func (b *Backend) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	s := stateOf(h)
	_, err := b.prove(ctx, h, raiseScript, raiseScript.of(s.key(), 2, s.id(), token))
	if err == nil {
		s.raise(token)
	}
	return err
}

// request is the script that asks for the lock, and the command that runs it.
// An id that is in the queue was ready once; only who joins must be.
func (c *call) request(mode string) (*script, []any) {
	if c.ballot == nil || mode == "p" {
		return acquireScript, acquireScript.of(c.key, 5, c.id, millis(c.TTL), mode, c.rank)
	}
	return voteScript, voteScript.call(append(c.key.args(5), bootKey), c.id, millis(c.TTL), mode, c.rank,
		millis(c.ballot.Rejoin), c.ballot.Token, backend.TokenLead.Microseconds())
}

// unready is the error in a, if the server does not vote yet.
func unready(a answer) error {
	if a.status() != "NOT_READY" {
		return nil
	}
	return &backend.NotReadyError{In: time.Duration(a.int(2)) * time.Millisecond}
}
