package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

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
	for i, n := range b.nodes {
		missing = append(missing, i)
		b.janitor.Go(func(context.Context) { // it is open: Close waits for calls
			sent := time.Now()
			value, err := ask(asking, i)
			n.noteThere(b, time.Since(sent), err)
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

// thereLimit bounds how long a node that has been slow has to answer that it is there.
const thereLimit = time.Second

// isAnyThere reports whether one of the nodes answers a ping in time, the first that does. One that does
// not is watched from then on, and is not waited for again before it answers.
func (b *Backend) isAnyThere(nodes []int) bool {
	answers := make(chan bool, len(nodes))
	for _, i := range nodes {
		n := b.nodes[i]
		if n.pinger == nil || n.gone.Load() {
			n.check(b, 0, func() {})
			answers <- false
			continue
		}
		if !b.janitor.Go(func(ctx context.Context) {
			_, err := n.ping(ctx, 0)
			if !isAnswer(err) {
				n.check(b, 0, func() {})
			}
			answers <- isAnswer(err)
		}) {
			answers <- false
		}
	}
	over := time.After(thereLimit)
	for range nodes {
		select {
		case answered := <-answers:
			if answered {
				return true
			}
		case <-over:
			return false
		}
	}
	return false
}

// countMissing is how many nodes have not answered.
func countMissing[T any](answers []*T) (n int) {
	for _, a := range answers {
		if a == nil {
			n++
		}
	}
	return n
}
