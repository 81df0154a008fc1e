package quorum

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
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

// pingNodes returns what the nodes say of their versions, nil for one that is silent. Each
// is asked once more if that fails: a connection that broke while nobody used it fails once.
func (b *Backend) pingNodes(ctx context.Context) ([]*string, error) {
	return askAll(ctx, b, func(ctx context.Context, i int) (string, error) {
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
	})
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
		if len(out.Holders) > 0 || !changesHands(before, byNode) || time.Now().After(end) {
			return out, nil
		}
		before = byNode
	}
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
	silent := countSilent(byNode)
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

// Names implements backend.Inspector. It yields the names that enough nodes have, or may
// have, as Inspect does. It remembers some bytes of each.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		alive, err := b.pingNodes(ctx)
		if err != nil {
			yield("", err)
			return
		}
		var failures []error
		for i := range alive {
			if alive[i] == nil {
				failures = append(failures, nodeError(i, backend.ErrUnavailable))
			}
		}
		seed, seen := maphash.MakeSeed(), make(map[uint64]sighting)
		each := func(name string, node, enough int) bool {
			hash := maphash.String(seed, name)
			s := seen[hash]
			if s.nodes == yielded || s.nodes > 0 && int(s.last) == node { // which may name it twice
				return true
			}
			s = sighting{nodes: s.nodes + 1, last: int32(node)}
			isEnough := int(s.nodes) >= enough
			if isEnough {
				s.nodes = yielded
			}
			seen[hash] = s
			return !isEnough || yield(name, nil)
		}
		for {
			i, err := b.listNames(ctx, prefix, alive, each)
			if err == nil {
				return
			}
			failures = append(failures, nodeError(i, err))
			if len(failures) > len(b.nodes)-b.need {
				yield("", backend.Fail(kindOf(err), errors.Join(failures...)))
				return
			}
			alive[i] = nil // it may have any name from now on, also those passed over
			maps.DeleteFunc(seen, func(_ uint64, s sighting) bool { return s.nodes != yielded })
		}
	}
}

// A sighting is how many nodes have a name, and the last of them.
type sighting struct{ nodes, last int32 }

// yielded stands for the number of nodes that have a name which Names has yielded.
const yielded = -1

// listNames calls each with every name that a node which is alive has, with that node, and with
// how many of these nodes have to have it. It returns the node that failed.
func (b *Backend) listNames(ctx context.Context, prefix string, alive []*string, each func(name string, node, enough int) bool) (int, error) {
	enough := max(b.need-countSilent(alive), 1)
	for i := range b.nodes {
		if alive[i] == nil {
			continue
		}
		stopped := false
		err := b.namesOf(ctx, i, prefix, func(name string) bool {
			stopped = !each(name, i, enough)
			return !stopped
		})
		if stopped || err != nil {
			return i, err
		}
	}
	return 0, nil
}

// namesOf calls do with each name that node i has, until it reports false. A node that
// says nothing for nameTimeout is not waited for any more. A page without a name counts: the
// node may have many keys of others.
func (b *Backend) namesOf(ctx context.Context, i int, prefix string, do func(string) bool) error {
	in, err := nodeAs[backend.Inspector](b, i)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(nameTimeout, cancel)
	defer timer.Stop()
	ctx = backend.WithProgress(backend.WithRests(ctx, b.need), func() { timer.Reset(nameTimeout) })
	for name, err := range in.Names(ctx, prefix) {
		if err != nil {
			return err
		}
		timer.Stop()
		if !do(name) {
			return nil
		}
		timer.Reset(nameTimeout)
	}
	return nil
}

const nameTimeout = 2 * time.Second

// Break implements backend.Breaker. Each node ends what it knows by that token: a hold is
// known by its token at enough nodes, and at no other node by that of another. It is
// ErrNotHeld if no node has ended anything. One part alone is an end of the hold as well:
// others who break it at the same moment may have ended the rest, each of them too little.
// But a node that was asked too early may have joined the hold since, beside one that is away.
// So all are asked again until enough have ended a part, or none has one any more.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	if b.needsAll() {
		return b.breakAtAll(ctx, name, token)
	}
	for all := 0; all < b.need; {
		ended, err := b.breakParts(ctx, name, func(int) uint64 { return token })
		if errors.Is(err, backend.ErrNotHeld) && all > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		all += ended
	}
	return nil
}

// breakParts asks each node to end what it knows by a token, 0: nothing. It returns how many
// have, and is ErrNotHeld if none has. A node that is late does it later.
func (b *Backend) breakParts(ctx context.Context, name string, token func(node int) uint64) (ended int, err error) {
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
	return ended, err
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
		_, err := b.breakParts(ctx, name, func(i int) uint64 {
			if tokens[i] == token {
				return token
			}
			return 0
		})
		if err != nil {
			return err
		}
		_, err = b.breakParts(ctx, name, func(i int) uint64 { return tokens[i] })
		if errors.Is(err, backend.ErrNotHeld) { // its holder has given the rest back
			return nil
		}
		return err
	}
	return backend.ErrNotHeld
}

// tokenOf is the token of a hold of which the nodes have these parts: the one by which
// enough of them know it, and each that is silent may. Those that are just joining it, or
// all where all are needed, know it by tokens of their own, of which the greatest counts.
func (b *Backend) tokenOf(parts []nodeParty, silent int) (token uint64) {
	known := make(map[uint64]int)
	for _, p := range parts {
		known[p.Token]++
		token = max(token, p.Token)
	}
	if b.needsAll() {
		return token
	}
	most := 0
	for t, n := range known {
		if n+silent >= b.need && (n > most || n == most && t > token) {
			token, most = t, n
		}
	}
	return token
}

// countSilent is how many nodes have not answered.
func countSilent[T any](answers []*T) (n int) {
	for _, a := range answers {
		if a == nil {
			n++
		}
	}
	return n
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

// isAnyThere reports whether one of the nodes answers a ping, the first that does. One that does not
// is watched from then on, and is not waited for again before it answers.
func (b *Backend) isAnyThere(nodes []int) bool {
	answers := make(chan bool, len(nodes))
	for _, i := range nodes {
		n := b.nodes[i]
		if n.pinger == nil || n.gone.Load() {
			n.check(b, 0, func() {})
			answers <- false
			continue
		}
		if !b.janitor.Go(func(context.Context) {
			_, err := n.ping(0)
			if !isAnswer(err) {
				n.check(b, 0, func() {})
			}
			answers <- isAnswer(err)
		}) {
			answers <- false
		}
	}
	for range nodes {
		if <-answers {
			return true
		}
	}
	return false
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

// askAll asks all nodes at once. It returns the answers, nil where there is none, as soon as
// enough nodes have answered, the others had a moment to, and none of those is there: the node
// where others queue has the longest answer, and would be missing beside those with nothing to
// tell. It waits no longer than ctx allows.
func askAll[T any](ctx context.Context, b *Backend, ask func(ctx context.Context, node int) (T, error)) ([]*T, error) {
	type answer struct {
		node  int
		value T
		err   error
	}
	if !b.beginCall() {
		return nil, backend.ErrClosed
	}
	defer b.calls.Done()
	asking, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan answer, len(b.nodes))
	var missing []int // nodes
	grace := func() (g time.Duration) {
		for _, i := range missing {
			g = max(g, b.nodes[i].grace())
		}
		return g
	}
	for i := range b.nodes {
		missing = append(missing, i)
		b.janitor.Go(func(context.Context) { // it is open: Close waits for calls
			value, err := ask(asking, i)
			results <- answer{i, value, err}
		})
	}
	answers := make([]*T, len(b.nodes))
	var failures []error
	var enough <-chan time.Time
	there := make(chan bool, 1)
	answered := 0
	for len(missing) > 0 {
		select {
		case r := <-results:
			missing = slices.DeleteFunc(missing, func(i int) bool { return i == r.node })
			if r.err != nil {
				failures = append(failures, nodeError(r.node, r.err))
				continue
			}
			answers[r.node] = &r.value
			if answered++; answered == b.need {
				enough = time.After(grace())
			}
		case <-enough:
			late := slices.Clone(missing)
			b.janitor.Go(func(context.Context) { there <- b.isAnyThere(late) })
		case wait := <-there:
			if !wait {
				return answers, nil
			}
			enough = time.After(max(grace(), answerMargin))
		case <-ctx.Done():
			if answered >= b.need {
				return answers, nil
			}
			return nil, backend.WaitEnded(ctx, false)
		case <-b.closing:
			return nil, backend.ErrClosed
		}
	}
	if answered < b.need {
		if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) { // a connection may notice first
			<-ctx.Done()
			return nil, backend.WaitEnded(ctx, false)
		}
		return nil, backend.Fail(kindOf(failures[0]), errors.Join(failures...))
	}
	return answers, nil
}
