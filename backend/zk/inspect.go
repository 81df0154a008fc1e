package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// maxReads is how many nodes are read at a time: others wait behind them. The server can list
// the children of a node only as a whole, and tells nothing of them but their names.
const maxReads = 48

// Ping implements backend.Pinger. It asks the leader. ZooKeeper does not tell a client its
// version.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	return query(ctx, b, func(s *session) (string, error) {
		_, err := s.client.Sync(b.opts.Root)
		return "", err
	})
}

// Inspect implements backend.Inspector. The client of a party is the last eight digits
// of its session: one that has many locks has several. Since is when it joined the queue,
// for holders too, or when it became a reader. The token is that of the goroutine that was
// granted the hold, although it may have passed it on. How long the server keeps a hold is
// not known: it depends on the session timeout of its client.
func (b *Backend) Inspect(ctx context.Context, name string) (backend.Snapshot, error) {
	return query(ctx, b, func(s *session) (out backend.Snapshot, err error) {
		holders, waiters, err := s.readQueue(ctx, s.backend.dirOf(name), parseQueue, backend.MaxRest)
		for _, e := range holders {
			p := e.party()
			p.Entries, p.Token = 1, e.token
			out.Holders = append(out.Holders, p)
		}
		for _, e := range waiters {
			out.Waiters = append(out.Waiters, e.party())
		}
		return out, err
	})
}

// Names implements backend.Inspector. It has the names of all locks in memory that
// begin with prefix, and asks for the queue of each.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		children, err := query(ctx, b, func(s *session) ([]string, error) {
			children, _, err := s.client.Children(b.opts.Root)
			return children, err
		})
		if err != nil {
			yield("", err)
			return
		}
		names := slices.DeleteFunc(children, func(child string) bool {
			name, ok := backend.DecodeName(child)
			return !ok || !strings.HasPrefix(name, prefix)
		})
		backend.Progress(ctx)
		for some := range slices.Chunk(names, maxReads) {
			asked := time.Now()
			used, err := query(ctx, b, func(s *session) ([]string, error) { return s.inUse(some) })
			if err != nil {
				yield("", err)
				return
			}
			took := time.Since(asked)
			for _, child := range used {
				if name, _ := backend.DecodeName(child); !yield(name, nil) {
					return
				}
			}
			backend.Rest(ctx, took, backend.MaxRest)
		}
	}
}

// An entry is a node in the queue for a lock, with what it says of itself.
type entry struct {
	position
	found   bool
	session int64
	since   time.Time
	label   string
	token   uint64
}

func (e entry) party() backend.Party {
	return backend.Party{Label: e.label, Client: fmt.Sprintf("%08x", uint32(e.session)), Mode: e.mode, Since: e.since}
}

// readQueue returns the holders and the waiters of a lock, each in the order of the queue, of those
// that parse returns of all. Between the pages of a long queue it pauses for rest at most.
func (s *session) readQueue(ctx context.Context, dir string, parse func(children []string) queue, rest time.Duration) (holders, waiters []entry, err error) {
	children, _, err := s.client.Children(dir)
	if err != nil {
		return nil, nil, ignoreNoNode(err)
	}
	queue := make([]entry, 0, len(children))
	for _, p := range parse(children) {
		queue = append(queue, entry{position: p})
	}
	for some := range slices.Chunk(queue, maxReads) {
		asked := time.Now()
		err = atOnce(len(some), func(i int) error { return ignoreNoNode(s.read(dir, &some[i])) })
		if err = cmp.Or(err, backend.Cause(ctx)); err != nil {
			return nil, nil, err
		}
		if len(queue) > maxReads {
			backend.Rest(ctx, time.Since(asked), rest)
		}
	}
	queue = slices.DeleteFunc(queue, func(e entry) bool { return !e.found }) // gone meanwhile
	slices.SortFunc(queue, func(a, b entry) int { return byPlace(a.position, b.position) })
	writerBefore := false
	for i, e := range queue {
		if i == 0 || e.mode == backend.Shared && !writerBefore {
			holders = append(holders, e)
		} else {
			waiters = append(waiters, e)
		}
		writerBefore = writerBefore || e.mode == backend.Exclusive
	}
	return holders, waiters, nil
}

// read fills e in from its node, or from the one that has taken its place in a downgrade since
// the queue was listed: without it those who wait behind would seem to hold the lock.
func (s *session) read(dir string, e *entry) error {
	data, stat, err := s.client.Get(dir + "/" + e.name)
	if errors.Is(err, gozk.ErrNoNode) && e.mode == backend.Exclusive {
		e.name, e.mode = e.readerName(), backend.Shared
		data, stat, err = s.client.Get(dir + "/" + e.name)
	}
	if err != nil {
		return err
	}
	rank, label, token := parseNodeData(data)
	e.rank = cmp.Or(rank, stat.Czxid)
	e.found, e.session, e.since, e.label = true, stat.EphemeralOwner, time.UnixMilli(stat.Ctime), label
	e.token = cmp.Or(token, tokenOf(e.rank))
	return nil
}

// inUse returns those of the root's children at which somebody holds or waits.
func (s *session) inUse(names []string) (used []string, err error) {
	queued := make([]bool, len(names))
	err = atOnce(len(names), func(i int) error {
		children, _, err := s.client.Children(s.backend.opts.Root + "/" + names[i])
		queued[i] = len(parseQueue(children)) > 0
		return ignoreNoNode(err)
	})
	for i, name := range names {
		if queued[i] {
			used = append(used, name)
		}
	}
	return used, err
}

// atOnce calls f for each number below n, at the same time, and returns the first error.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return cmp.Or(errs...)
}
