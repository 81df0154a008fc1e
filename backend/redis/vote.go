package redis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// bootKey says since when the server has kept its data. No lock has that key.
const bootKey = prefix + "boot"

// Vote implements backend.TokenRegister. A cluster is no single server: there
// it is ErrUnsupported.
func (b *Backend) Vote(ctx context.Context, r backend.Request, v backend.Ballot) (*backend.Hold, error) {
	if b.cluster != nil {
		return nil, backend.ErrUnsupported
	}
	return b.acquire(ctx, r, &v)
}

// isAnnounced reports that each connection has been announced before it is used. Who only
// asks writes nothing.
func (b *Backend) isAnnounced() bool { return b.member && !b.inspectOnly }

// announce has the server of a new connection see whether it has restarted. It runs
// before the connection is used: what is asked on it later, is asked in the same run.
func announce(ctx context.Context, c redis.Cmdable) error {
	durable := 0
	if isDurable(c.ConfigGet(ctx, appendSettings).Val()) {
		durable = 1
	}
	return c.Eval(ctx, announceScript.source, []string{bootKey}, durable).Err()
}

// appendSettings are those that isDurable looks at.
const appendSettings = "*append*"

// isDurable reports whether a server with such settings has every write on disk
// before it acknowledges it, also while a child of it writes a snapshot or the log
// anew.
func isDurable(config map[string]string) bool {
	return config["appendonly"] == "yes" && config["appendfsync"] == "always" && config["no-appendfsync-on-rewrite"] != "yes"
}

// maxAhead is how far the token of a vote may be ahead of this machine's clock. Clocks
// differ, and tokens keep growing when one is set back; but of several servers one that
// lies shall not have the others give out tokens that cannot grow any more.
const maxAhead = 24 * time.Hour

var errAhead = errors.New("the server's token is a day ahead of this machine's clock")

// isCredible reports whether a grant may count as a vote.
func (c *acquisition) isCredible(g grant) bool {
	return c.ballot == nil || g.token <= time.Now().Add(maxAhead).UnixMicro()
}

// RaiseToken implements backend.TokenRegister.
func (b *Backend) RaiseToken(ctx context.Context, h *backend.Hold, token uint64) error {
	err := b.tellToken(ctx, h, token, "raise")
	if err == nil {
		stateOf(h).raise(token)
	}
	return err
}

// LowerToken implements backend.TokenRegister.
func (b *Backend) LowerToken(ctx context.Context, h *backend.Hold, token uint64) error {
	return b.tellToken(ctx, h, token, "lower")
}

// tellToken has the server know a hold by a token of other servers.
func (b *Backend) tellToken(ctx context.Context, h *backend.Hold, token uint64, how string) error {
	s := stateOf(h)
	_, err := b.change(ctx, h, tokenScript, tokenScript.callWith(s.key(), 2, s.id, token, how), nil)
	return err
}

// voteCall is call for one of several servers that decide together.
func (c *acquisition) voteCall(mode string) []any {
	unannounced := 1
	if c.b.isAnnounced() {
		unannounced = 0
	}
	return voteScript.call(append(c.key.args(5), bootKey), c.id, millis(c.TTL), mode, c.rank,
		millis(c.ballot.Rejoin), c.ballot.Token, backend.TokenLead.Microseconds(), unannounced)
}

// grabVote is the script that takes a free lock for a vote, and the command that runs it. It
// goes by what the connection has announced.
func (c *acquisition) grabVote() (*script, []any) {
	return grabVoteScript, grabVoteScript.call(append(c.key.args(1), bootKey), c.id, millis(c.TTL),
		millis(c.ballot.Rejoin), c.ballot.Token, backend.TokenLead.Microseconds())
}

// notReady is the error in a, if the server does not vote yet.
func notReady(a answer) error {
	if a.status() != "NOT_READY" {
		return nil
	}
	return &backend.NotReadyError{In: a.millis(2)}
}
