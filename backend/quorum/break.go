package quorum

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// Break implements backend.Breaker. Each node ends what it knows by that token: a hold is
// known by its token at enough nodes, and at no other node by that of another. It is
// ErrNotHeld if no node has ended anything. One part alone is an end of the hold as well:
// others who break it at the same moment may have ended the rest, each of them too little.
// But a node that was asked too early may have joined the hold since, beside one that is away.
// So all are asked again until enough have ended a part, or none has one any more. If one does not
// answer then, that is ErrUnavailable: it may have a part, and the next renewal may have the hold
// join those that had none, before any node says that it was broken.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	if b.needsAll() {
		return b.breakAtAll(ctx, name, token)
	}
	for all := 0; all < b.need; {
		ended, silent, err := b.breakParts(ctx, name, func(int) uint64 { return token })
		switch {
		case errors.Is(err, backend.ErrNotHeld) && all > 0 && silent > 0:
			return backend.Fail(backend.ErrUnavailable, errHalfBroken)
		case errors.Is(err, backend.ErrNotHeld) && all > 0:
			return nil
		case err != nil:
			return err
		}
		all += ended
	}
	return nil
}

// breakParts asks each node to end what it knows by a token, 0: nothing. It returns how many
// have, and how many have not answered, and is ErrNotHeld if none has. A node that is late does it
// later.
func (b *Backend) breakParts(ctx context.Context, name string, token func(node int) uint64) (ended, silent int, err error) {
	answers, err := askAll(ctx, b, func(ctx context.Context, i int) (bool, error) {
		breaker, err := nodeAs[backend.Breaker](b, i)
		if err != nil || token(i) == 0 {
			return false, err
		}
		ctx, cancel := backend.Detach(ctx, backend.FirstAnswer)
		defer cancel()
		err = breaker.Break(ctx, name, token(i))
		if errors.Is(err, backend.ErrNotHeld) {
			return false, nil
		}
		return err == nil, err
	})
	for _, a := range answers {
		if a != nil && *a {
			ended++
		}
	}
	if err == nil && ended == 0 {
		err = backend.ErrNotHeld
	}
	return ended, countMissing(answers), err
}

// breakAtAll is Break where all nodes are needed. Each of them knows a hold by a token of
// its own, and the greatest is that of the hold. Once that part is ended nobody has the lock
// and the others can be: before, they may be those of the next hold.
func (b *Backend) breakAtAll(ctx context.Context, name string, token uint64) error {
	byNode, err := b.inspectNodes(ctx, name)
	if err != nil {
		return err
	}
	holders, _ := groupParties(byNode, 0, false)
	for _, parts := range holders {
		if len(parts) < b.need || b.tokenOf(parts, 0) != token {
			continue
		}
		tokens := make([]uint64, len(b.nodes))
		for _, p := range parts {
			tokens[p.node] = p.Token
		}
		_, _, err := b.breakParts(ctx, name, func(i int) uint64 {
			if tokens[i] == token {
				return token
			}
			return 0
		})
		if err != nil {
			return err
		}
		_, _, err = b.breakParts(ctx, name, func(i int) uint64 { return tokens[i] })
		if errors.Is(err, backend.ErrNotHeld) { // its holder has given the rest back
			return nil
		}
		return err
	}
	return backend.ErrNotHeld
}
