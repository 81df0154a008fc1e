package quorum

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"maps"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Names implements backend.Inspector. It yields the names that enough nodes have, or may
// have, as Inspect does. It remembers some bytes of each.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		alive, err := b.pingNodes(ctx)
		if err != nil {
			yield("", err)
			return
		}
		backend.Progress(ctx)
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
			alive[i] = nil        // it may have any name from now on, also those passed over
			backend.Progress(ctx) // the next has its own time
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
	enough := max(b.need-countMissing(alive), 1)
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
