package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Ping implements backend.Pinger: enough nodes for a hold answer. The version is that
// of one of them.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	versions, err := b.pingNodes(ctx)
	for _, v := range versions {
		if v != nil {
			version = cmp.Or(version, *v)
		}
	}
	return version, err
}

// pingNodes returns what the nodes say of their versions, nil for one that is silent. When enough
// have answered, the others have nameTimeout: a ping may hang on a connection that something on the
// way has forgotten, and whoever has a limit for an answer has had a part of it.
func (b *Backend) pingNodes(ctx context.Context) ([]*string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var answered atomic.Int32
	return askAll(ctx, b, func(asking context.Context, i int) (string, error) {
		version, err := b.pingNode(asking, i)
		if err == nil && int(answered.Add(1)) == b.need {
			backend.Progress(ctx)
			time.AfterFunc(nameTimeout, stop)
		}
		return version, err
	})
}

// pingNode asks node i once more if that fails: a connection that broke while nobody used it fails once.
func (b *Backend) pingNode(ctx context.Context, i int) (string, error) {
	p, err := nodeAs[backend.Pinger](b, i)
	if err != nil {
		return "", err
	}
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	version, err := p.Ping(ctx)
	if err != nil && kindOf(err) == backend.ErrUnavailable {
		version, err = p.Ping(ctx)
	}
	return version, err
}

// Inspect implements backend.Inspector. A holder is who holds the lock on enough nodes,
// or may hold it there, because a node that does not answer could make up the number.
// Those who wait queue at one node. A lock that changes hands between the answers of two nodes
// is looked at again.
func (b *Backend) Inspect(ctx context.Context, name string) (out backend.Snapshot, err error) {
	var before []*backend.Snapshot
	for end := time.Now().Add(lookTime); ; {
		byNode, err := b.inspectNodes(ctx, name)
		if err != nil && before != nil {
			return out, nil
		}
		if err != nil {
			return backend.Snapshot{}, err
		}
		out = b.mergeSnapshots(name, byNode)
		if isPlain(out.Holders) || !changesHands(before, byNode) || time.Now().After(end) {
			return out, nil
		}
		before = byNode
	}
}

// isPlain reports whether those who are shown as holders can all be: where a node is silent, each of two
// may be the one who has the lock alone.
func isPlain(holders []backend.Party) bool {
	isAlone := func(p backend.Party) bool { return p.Mode == backend.Exclusive }
	return len(holders) == 1 || len(holders) > 1 && !slices.ContainsFunc(holders, isAlone)
}

// lookTime is for how long Inspect looks again.
const lookTime = time.Second / 2

// changesHands reports whether some nodes say that somebody holds the lock, and have not said the
// same before.
func changesHands(before, now []*backend.Snapshot) bool {
	isHeld, isSame := false, before != nil
	for i, s := range now {
		if s == nil {
			continue
		}
		isHeld = isHeld || len(s.Holders) > 0
		isSame = isSame && before[i] != nil && slices.EqualFunc(s.Holders, before[i].Holders, func(p, q backend.Party) bool {
			return p.Client == q.Client && p.Token == q.Token
		})
	}
	return isHeld && !isSame
}

// mergeSnapshots makes one snapshot of those of the nodes.
func (b *Backend) mergeSnapshots(name string, byNode []*backend.Snapshot) (out backend.Snapshot) {
	silent := countMissing(byNode)
	holders, order := groupParties(byNode, 0, false)
	for _, key := range order {
		if parts := holders[key]; len(parts)+silent >= b.need {
			out.Holders = append(out.Holders, b.mergeHolder(parts, silent))
		}
	}
	waiters, order := groupParties(byNode, b.firstFront(hashOf(name)), true)
	for _, key := range order {
		if len(holders[key])+silent < b.need {
			first := slices.MinFunc(waiters[key], func(p, q nodeParty) int { return p.Since.Compare(q.Since) })
			out.Waiters = append(out.Waiters, first.Party)
		}
	}
	return out
}

// tokenOf is the token of a hold of which the nodes have these parts: the one by which
// enough of them know it, and each that is silent may; 0 if there is none yet. Where all nodes are
// needed, each knows it by a token of its own, of which the greatest counts.
func (b *Backend) tokenOf(parts []nodeParty, silent int) (token uint64) {
	known, greatest := make(map[uint64]int), uint64(0)
	for _, p := range parts {
		known[p.Token]++
		greatest = max(greatest, p.Token)
	}
	if b.needsAll() {
		return greatest
	}
	most := 0
	for t, n := range known {
		if n+silent >= b.need && (n > most || n == most && t > token) {
			token, most = t, n
		}
	}
	return token
}

// inspectNodes returns what the nodes say of a lock.
func (b *Backend) inspectNodes(ctx context.Context, name string) ([]*backend.Snapshot, error) {
	return askAll(ctx, b, func(ctx context.Context, i int) (backend.Snapshot, error) {
		in, err := nodeAs[backend.Inspector](b, i)
		if err != nil {
			return backend.Snapshot{}, err
		}
		return in.Inspect(backend.WithRests(ctx, b.need), name)
	})
}

// A partyKey says that parties of several nodes are the same: the k-th of that client and
// label. Those who wait at a node count on from those who hold it there, because a holder may
// still wait at some nodes, and its client may have one more request waiting. The mode is not
// compared: some of the nodes may have heard of a downgrade, and others not yet.
type partyKey struct {
	client, label string
	k             int
}

type nodeParty struct {
	backend.Party
	node int
}

// groupParties brings together what the nodes say of those who wait, or of those who hold. It
// has the order of the nodes from first on.
func groupParties(byNode []*backend.Snapshot, first int, waiting bool) (groups map[partyKey][]nodeParty, order []partyKey) {
	groups = make(map[partyKey][]nodeParty)
	for n := range byNode {
		i := (first + n) % len(byNode)
		if byNode[i] == nil {
			continue
		}
		seen := make(map[partyKey]int)
		parties := byNode[i].Holders
		if waiting {
			for _, p := range parties {
				seen[keyOf(p)]++
			}
			parties = byNode[i].Waiters
		}
		for _, p := range parties {
			key := keyOf(p)
			seen[key]++
			key.k = seen[key]
			if groups[key] == nil {
				order = append(order, key)
			}
			groups[key] = append(groups[key], nodeParty{p, i})
		}
	}
	return groups, order
}

// keyOf is the key of p without a number.
func keyOf(p backend.Party) partyKey { return partyKey{client: p.Client, label: p.Label} }

// mergeHolder makes one holder of what the nodes say of it: it has the lock since
// enough nodes have granted, for as long as enough of them keep it, and alone until enough of
// them have downgraded it.
func (b *Backend) mergeHolder(parts []nodeParty, silent int) backend.Party {
	out := parts[0].Party
	enough := min(b.need, len(parts))
	slices.SortFunc(parts, func(p, q nodeParty) int { return p.Since.Compare(q.Since) })
	out.Since = parts[enough-1].Since
	slices.SortFunc(parts, func(p, q nodeParty) int { return cmp.Compare(q.Left, p.Left) })
	out.Left = parts[enough-1].Left
	out.Token = b.tokenOf(parts, silent)
	shared := 0
	for _, p := range parts {
		out.Entries = max(out.Entries, p.Entries)
		if p.Mode == backend.Shared {
			shared++
		}
	}
	out.Mode = backend.Exclusive
	if shared >= enough {
		out.Mode = backend.Shared
	}
	return out
}
