package quorum

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// examineLimit is for how long nodes are examined. That takes some twenty round trips, and 3 s at 150 ms of each.
const examineLimit = 2 * backend.FirstAnswer

// Examine implements backend.Examiner. It looks at each node, and what it finds names
// the node.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	report(b.checkNumber())
	ctx, cancel := backend.Bound(ctx, examineLimit)
	defer cancel()
	type result struct {
		findings []backend.Finding
		vote     error
		err      error
	}
	results := make([]result, len(b.nodes))
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			r := &results[i]
			r.err = b.examineNode(ctx, i, func(f backend.Finding) { r.findings = append(r.findings, f) })
			if r.err == nil {
				r.vote = b.tryVote(ctx, i)
			}
		})
	}
	all.Wait() // they end with ctx
	silent, voters := 0, 0
	for i, r := range results {
		name := fmt.Sprintf("node %d", i+1)
		for _, f := range r.findings {
			f.Text = name + ": " + f.Text
			report(f)
		}
		if r.err != nil {
			silent++
			report(backend.Warn("nodes", name+": "+r.err.Error(), "start it, or mend the way to it"))
			continue
		}
		if _, not := votesIn(r.vote); not {
			report(backend.Warn("nodes", name+": "+r.vote.Error(), "wait: a hold that it has forgotten may last as long"))
			continue
		}
		voters++
	}
	switch answer := len(b.nodes) - silent; {
	case answer < b.need:
		report(backend.Bad("nodes", fmt.Sprintf("%d of %d nodes answer, and %d are needed: no lock will work", answer, len(b.nodes), b.need), "start the others"))
	case voters < b.need:
		report(backend.Bad("nodes", fmt.Sprintf("%d of %d nodes take part yet, and %d are needed: nobody gets a lock until then", voters, len(b.nodes), b.need), "wait until they do"))
	}
	return nil
}

// tryVote asks a node for a lock that nobody else asks for: one that has restarted lately
// says when it votes.
func (b *Backend) tryVote(ctx context.Context, i int) error {
	n := b.nodes[i]
	if n.register == nil {
		return nil
	}
	h, err := n.register.Vote(ctx, backend.Request{
		Name: "dlock doctor " + rand.Text(), ID: backend.ID{Client: rand.Text(), Seq: 1}, TTL: max(b.MinTTL(), time.Second),
	}, backend.Ballot{Rejoin: b.rejoin})
	if err == nil {
		_ = n.Release(ctx, h) // it runs out by itself
	}
	return err
}

// examineNode pings a node that cannot be examined.
func (b *Backend) examineNode(ctx context.Context, i int, report func(backend.Finding)) error {
	if e, ok := b.nodes[i].Backend.(backend.Examiner); ok {
		return e.Examine(ctx, report)
	}
	p, err := nodeAs[backend.Pinger](b, i)
	if err == nil {
		_, err = p.Ping(ctx)
	}
	if err == nil {
		report(backend.Good("nodes", "answers"))
	}
	return err
}

// checkNumber says how many nodes may be away.
func (b *Backend) checkNumber() backend.Finding {
	const subject = "quorum"
	n := len(b.nodes)
	switch {
	case b.needsAll():
		return backend.Good(subject, fmt.Sprintf("a lock takes all %d nodes: none may be away", n))
	case 2*b.need > n+2:
		return backend.Warn(subject, fmt.Sprintf("a lock takes %d of %d nodes: %d may be away, and fewer nodes would do for that", b.need, n, n-b.need), "leave Need to be a majority")
	}
	return backend.Good(subject, fmt.Sprintf("a lock takes %d of %d nodes: %d may be away", b.need, n, n-b.need))
}
