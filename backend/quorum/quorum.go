// Package quorum keeps a lock on several independent servers, its nodes, so that
// it survives the loss of some of them. A lock is held by whoever holds it on a
// majority of the nodes: RedLock, over any backends that can take part. With
// [Options.Need] it is held by whoever holds it on all of them.
//
// # URL
//
//	redlock://[user[:password]@]host[:port],host,host[/db]
//	redlocks://...                            with TLS
//
// names an odd number of Redis servers, three or more, that know nothing of one
// another: no replicas, no cluster. Package backend/redis must be imported too.
// Credentials, path and parameters are those of redis:// and hold for every
// node; there are also
//
//	dlock.need=all      a lock is held on every node, and may have any number
//	dlock.maxttl=2m     the greatest TTL that any client uses
//	dlock.skew=1s       the most by which the clocks of two nodes differ
//
// All clients must agree on all of it. Other backends, and mixed ones, are given
// to [New] by hand. What a node that lies can do, and what not, is told in
// docs/security.md.
//
// # Guarantees
//
// A lock is granted by a majority of the nodes, so that with 2n+1 of them n can
// be down, slow or cut off. The lease counts from the sending of the oldest
// request that the majority needs. Renewal and loss go by the majority as well;
// re-entry, readers and writers, and downgrade are asked of every node, and a
// majority must confirm them. A renewal takes the lock also on nodes that have
// come back, so that a lock that is held for long survives a restart of one
// after another.
//
// Who waits queues at one node, the front: the first that answers in an order of the
// nodes that follows from the name, so that the queues of many names are spread. Whom
// the front lets in asks the others, where nobody else waits, so votes are not split;
// a free lock is asked for everywhere at once, and takes one round trip. First come is
// first served as long as all clients have the same front. Nobody can promise that of
// independent nodes: when the front stops answering, or does so for some clients
// alone, those queue at the next. Two that block each other by that withdraw after
// some milliseconds, at random, and ask again. A node that is twice as slow as the others is no
// front either. A client that is let in by the front, and knows that most of the other nodes are
// away, gives its place back after a quarter of a second, and queues anew once enough of them
// answer pings: several such clients keep a free lock from others for as long one after the other.
// All clients must name the nodes in the same order.
//
// A client sees that a node is away when it has taken 50 ms longer than its last answers
// suggest, and another node has answered a ping after that. As long as none of them answers it
// waits, for 3 s at most: it may be the client that has no time to look. Of many who ask at
// once some wait for others to be answered first. While it waits in a queue it pings the
// nodes now and then, every 2 s at the most. What a node misses, because it is away
// or late, it learns with the next renewal. Who gives up has left all nodes that
// answer when the call returns.
//
// Nodes keep the last token of each name in a register. A token is taken in two
// steps: the greatest of those that the majority offers is written back to them
// before the lock counts as held, so that the next majority, which meets this one
// in a node, offers a greater one. A client proposes a token that all nodes can
// take, at whatever distance, so that the second step rarely takes a round trip.
//
// Asked who holds a lock, the quorum says what a majority of the nodes says. It waits
// for others that are late as long as they answer pings. Every node knows a hold by its
// token: one that has given it another is told, in the background where others are
// enough. So Break has each node end the hold of that token, and no other, and asks again
// if too few had a part: one may have joined the hold meanwhile. It is ErrNotHeld if no
// node has ended anything: of two who break a hold at the same moment, each may end a
// part. It is ErrUnavailable if too few had a part and a node does not answer: with that one, and
// with another that it joins later, the hold may go on. No word of one node ends a hold that most
// keep. Where all nodes are needed each has a token of its own, of which the greatest is the
// hold's; Break then looks first at who has the lock.
//
// A hold that most nodes have lost within one renewal is lost: a node that says so is asked
// again only when a majority has renewed the hold since.
//
// # Nodes that forget
//
// A node that restarts may grant again what it has forgotten. It therefore takes no
// part until it has been up for the rejoin delay, the greatest TTL plus twice the
// skew: whatever it had granted has run out by then. That holds for a node without
// its data (a FLUSHALL counts) and for one that has loaded what it knew some time ago:
// a snapshot, or a log that is not on disk with every write. The connections tell: none
// outlives a restart, and each begins with a look at the server's run id.
//
// With appendonly yes, appendfsync always and no-appendfsync-on-rewrite no a restart
// forgets nothing, and the node votes at once. Settings changed by CONFIG SET are noticed with the
// next connection; a node that has restarted with others, or is met by a user who may not ask for
// them, takes no part at first. A server that has been up for longer than the delay when dlock
// first meets it votes at once as well; a newer one keeps the first client waiting for the rest: until then
// Lock waits and TryLock is ErrUnavailable. An operator who knows that no lock was held
// can have a Redis node take part at once, with HSET dlock:boot since 1 run -.
//
// The delay is measured by the node's clock. One that is set forward while it runs,
// by more than the skew, cuts the delay short, as it does every lease there: start
// Redis after the clock is right. All nodes have a hold soon after it was granted, and it
// survives such a step at a minority of them. One that has a bare majority, because other
// nodes are away, does not: two may have the lock until the first of them renews.
//
// A client given to [New] as backend/redis makes it of somebody's own connections asks
// for the run id with every vote.
//
// # All nodes
//
// With Need equal to the number of nodes every hold has every node, so neither
// register nor rejoin delay is needed and any backends will do. The token is the
// greatest of the nodes' own: each of them grows from hold to hold, and so does
// their greatest. It can regress only if the backend with the greatest numbers
// loses its data and breaks its own promise. Waiting goes from node to node in
// the order given, which must be the same everywhere, and who waits at one keeps none of
// those behind it. A TTL of less than twenty round trips to all of them, added up, may be too
// short where connections have to be made first. Such a lock is as available as all its nodes
// together; what it survives is a node that forgets.
package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// The defaults of Options.
const (
	DefaultMaxTTL = 2 * time.Minute
	DefaultSkew   = time.Second
)

// Options are the settings of a Backend. The zero value asks for a majority.
// All clients of the same nodes must have the same.
type Options struct {
	// Need is how many nodes a hold takes: more than half of them, and at
	// most all. Zero means a majority, for which the number of nodes must be
	// odd and at least 3.
	Need int

	// MaxTTL is the greatest TTL of any request, of any client. A request for
	// more is ErrInvalidTTL. Zero means DefaultMaxTTL. It has no meaning where
	// all nodes are needed.
	MaxTTL time.Duration

	// Skew is the most by which the clocks of two nodes differ. Zero means
	// DefaultSkew.
	Skew time.Duration

	// Logger is told of nodes that do not answer, and of those that do not vote yet
	// while a Lock waits for them. Nil discards it.
	Logger *slog.Logger
}

// A Backend keeps locks on several nodes.
type Backend struct {
	nodes    []*node
	need     int
	maxTTL   time.Duration // 0: no bound
	minTTL   time.Duration
	rejoin   time.Duration
	proposer proposer
	log      *slog.Logger

	contended contendedNames
	crowd     *crowd

	janitor backend.Janitor // has all requests to nodes
	calls   sync.WaitGroup  // Acquire calls under way
	closing chan struct{}   // closed when Close begins

	stopChecking context.CancelFunc // of nodes that have not answered since they were opened

	mu     sync.Mutex
	closed bool
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Reenterer     = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Expirer       = (*Backend)(nil)
	_ backend.MinTTLer      = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// New returns a backend over nodes, which it closes with itself. It sends
// nothing. It fails with ErrInvalidConfig if the numbers do not fit, and with
// ErrUnsupported if not all nodes are needed and one has no token register.
func New(nodes []backend.Backend, o *Options) (*Backend, error) {
	if o == nil {
		o = &Options{}
	}
	need, err := o.need(len(nodes))
	if err != nil {
		return nil, err
	}
	b := &Backend{need: need, log: o.Logger, minTTL: backend.MinTTL, crowd: newCrowd(), closing: make(chan struct{}), stopChecking: func() {}}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if need < len(nodes) {
		b.maxTTL = o.maxTTL()
		b.rejoin = b.maxTTL + 2*cmp.Or(o.Skew, DefaultSkew) + backend.TokenLead
	}
	for i, be := range nodes {
		n, err := newNode(be, need < len(nodes))
		if err != nil {
			return nil, backend.Fail(err, fmt.Errorf("node %d, %T", i+1, be))
		}
		b.nodes = append(b.nodes, n)
		if m, ok := be.(backend.MinTTLer); ok {
			b.minTTL = max(b.minTTL, m.MinTTL())
		}
	}
	return b, nil
}

// need is how many of n nodes a hold takes.
func (o *Options) need(n int) (int, error) {
	switch {
	case o.MaxTTL < 0 || o.MaxTTL > backend.MaxTTL || o.Skew < 0:
		return 0, invalid("a quorum's MaxTTL or Skew is out of range")
	case o.Need == 0 && (n < 3 || n%2 == 0):
		return 0, invalid(fmt.Sprintf("want 3 nodes, 5 or another odd number, so that a majority decides, and not %d; or need them all (Options.Need, dlock.need=all)", n))
	case o.Need == 0:
		return n/2 + 1, nil
	case n < 2 || o.Need <= n/2 || o.Need > n:
		return 0, invalid(fmt.Sprintf("%d of %d nodes: want more than half of them, and two or more", o.Need, n))
	}
	return o.Need, nil
}

func (o *Options) maxTTL() time.Duration { return cmp.Or(o.MaxTTL, DefaultMaxTTL) }

// needsAll reports whether a hold takes every node.
func (b *Backend) needsAll() bool { return b.need == len(b.nodes) }

// MinTTL implements backend.MinTTLer: no node has a greater one.
func (b *Backend) MinTTL() time.Duration { return b.minTTL }

// Close implements backend.Backend. It closes the nodes. Once enough are closed, the
// others have a quarter of a second to, or as long as their distance needs, 2 s at most, and then
// to answer what they have been asked and told: a connection of somebody's own stays open.
func (b *Backend) Close(ctx context.Context) error {
	if !b.beginClose() {
		return nil
	}
	b.calls.Wait()
	err := b.closeNodes(ctx)
	moment, cancel := backend.Bound(ctx, timeLeft(ctx, 2*leaveLimit)/2)
	defer cancel()
	_ = b.janitor.Close(moment) // it ends what is under way
	return errors.Join(err, b.janitor.Close(ctx))
}

func (b *Backend) closeNodes(ctx context.Context) error {
	results := make(chan error, len(b.nodes))
	closings, ends := make([]context.Context, len(b.nodes)), make([]context.CancelFunc, len(b.nodes))
	for i, n := range b.nodes {
		closings[i], ends[i] = context.WithCancel(ctx)
		defer ends[i]()
		go func() { results <- n.closeWithin(ctx, closings[i]) }()
	}
	var errs []error
	closed := 0
	for range b.nodes {
		if err := <-results; err != nil {
			errs = append(errs, err)
		} else if closed++; closed == b.need {
			for i, n := range b.nodes {
				go n.limitClose(closings[i], ends[i])
			}
		}
	}
	if closed >= b.need {
		errs = slices.DeleteFunc(errs, func(err error) bool { return kindOf(err) == backend.ErrUnavailable })
	}
	return errors.Join(errs...)
}

// beginClose turns newcomers and waiters away. It reports false if that was done.
func (b *Backend) beginClose() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.closed = true
	close(b.closing)
	b.stopChecking()
	return true
}

// beginCall counts an Acquire, unless the backend is closed.
func (b *Backend) beginCall() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.calls.Add(1)
	}
	return !b.closed
}
