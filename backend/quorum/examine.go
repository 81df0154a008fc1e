package quorum

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/backend"
)

// Examine implements backend.Examiner. It looks at each node, and what it finds names
// the node.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	report(b.checkNumber())
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	type result struct {
		findings []backend.Finding
		err      error
	}
	results := make([]chan result, len(b.nodes))
	for i := range b.nodes {
		results[i] = make(chan result, 1)
		if !b.janitor.Go(func(context.Context) {
			var r result
			r.err = b.examineNode(ctx, i, func(f backend.Finding) { r.findings = append(r.findings, f) })
			results[i] <- r
		}) {
			return backend.ErrClosed
		}
	}
	silent := 0
	for i := range b.nodes {
		name := fmt.Sprintf("node %d", i+1)
		r := <-results[i] // by the time that ctx ends
		for _, f := range r.findings {
			f.Text = name + ": " + f.Text
			report(f)
		}
		if r.err != nil {
			silent++
			report(backend.Warn("nodes", name+": "+r.err.Error(), "start it, or mend the way to it"))
		}
	}
	if len(b.nodes)-silent < b.need {
		report(backend.Bad("nodes", fmt.Sprintf("%d of %d nodes answer, and %d are needed: no lock will work", len(b.nodes)-silent, len(b.nodes), b.need), "start the others"))
	}
	return nil
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
