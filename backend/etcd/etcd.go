// Package etcd keeps locks in etcd, version 3.4 and later.
//
// # URL
//
//	etcd://[user[:password]@]host[:port][,host[:port]...][/prefix]
//	etcds://...
//
// The port is 2379 and the prefix dlock unless given. All keys lie below the
// prefix and a slash. With etcds the connection is encrypted; the parameters
// ca, cert and key name PEM files of the authority to trust, where it is not
// one of the system's, and of the client's certificate.
//
// # Guarantees
//
// Locks are as safe as etcd's quorum: a member that is cut off queues nobody, and
// may say late whose turn it is, but not wrongly. Waiting is first come, first
// served, except that a waiter whose lease runs out, because the cluster did not
// answer for a TTL, or whose key somebody deletes, queues anew. All locks of a client
// with one TTL share leases, each of at most a thousand keys, so that one request renews
// a thousand holds. A lease that is revoked or expires is seen at once, by a watch;
// without a connection its end is known by the client's own clock, before the cluster
// frees the lock.
//
// A holder hears with a renewal that another client waits, at no request's cost.
//
// A TTL is rounded up to whole seconds and to the least that the cluster
// grants, one and a half times its election timeout. After a change of leader
// the cluster may keep a lock for up to another TTL.
//
// A token is the revision at which the request joined the queue, shifted left
// by 16 bits, which count the goroutines of a client that pass a hold on. Every
// reader has its own, which lies between those of the writers before and after
// it. The server knows of a hold's first token only: Inspect shows that one although the
// hold was passed on, and Break takes any of the hold's 65,536 tokens for it. So an older
// token of a client that has passed its hold on breaks the hold, while the token of a hold
// that was released breaks nothing. To have the server know each token would cost a write
// whenever a hold is passed on. The holder of a broken hold hears of it with its next
// renewal, as ErrLost because of ErrBroken.
//
// # Log
//
// gRPC logs errors to stderr, for all connections of the process and without telling of
// which. While a client that Open has made has an Options.Logger, they go there, at Warn,
// and for a second after the last such client was closed they go nowhere, as connections
// that are being closed may still log one. For that this package calls
// grpclog.SetLoggerV2 when it is initialized. A program that calls it later has all
// lines, and so has stderr if one of gRPC's environment variables for its log is set.
//
// # Wire format
//
//	<prefix>/s/<lease>            a session of a client
//	<prefix>/s/<lease>/void/<n>   a request that was not answered is not carried out later
//	<prefix>/s/<lease>/broken/<n> Break has ended the hold that joined at revision n
//	<prefix>/l/<name>/w/<lease>   holds or waits, exclusive
//	<prefix>/l/<name>/r/<lease>   holds or waits, shared
//	<prefix>/l/<name>/d/<lease>   holds, shared, and was exclusive before
//	<prefix>/t/<name>/w           the key of the last exclusive request that has joined
//	<prefix>/t/<name>/r           the key of the last shared one
//
// A dot and a number follow the lease where one client has several requests for
// a name. The name is encoded by backend.EncodeName; the value is a plus sign and
// the label, of d/ the revision at which the hold joined the queue before them. The
// queue is in the order of create revisions. An exclusive request waits for all keys of
// the name with a lower revision and for those under d/, a shared one for those under w/
// with a lower revision.
//
// A writer that releases the lock while others wait behind it does not delete its key:
// it marks it, with a minus sign as its value. No request was before the writer's, so
// the next in line has the lock as soon as it hears of the mark, without another
// request, and deletes the key with its own release. Package internal/protocol has a model.
//
// The answer to a request that joins lists up to 32 keys that are before it. Who finds more
// makes the keys under t/, the tails of the queue. From then on each request that joins
// writes its key into the tail of its kind, in the same transaction, if that tail exists:
// what the next one reads there is who is before it, if that key still exists. A tail that
// is empty, or is not there, says nothing; then the request reads the queue.
//
// # Versions
//
// Version 3.4.31, 3.5.13 or any of 3.6 and later: in those before, a leader that has
// stalled acknowledges renewals of leases that have run out (etcd-io/etcd#15247), and
// 3.5.0 to 3.5.2 may lose what they have acknowledged (etcd-io/etcd#13766). A client
// that is opened by URL warns of them.
//
// # Permissions
//
// Who can do what to a lock, and how to set a server up so that it holds, is told in
// docs/security.md.
//
// With authentication a user needs a role with readwrite on the prefix:
//
//	etcdctl role grant-permission locker --prefix=true readwrite dlock/
//
// Inspect and Names work on a client that is given to New with a role that may read
// only.
//
// # The client library
//
// Requests go through go.etcd.io/etcd/client/v3 3.7. These places are there because of
// what the library or the server does otherwise:
//
//   - login: when the library asks for a new token it sends the old one along, which etcd
//     3.4 refuses, and it asks once for every stream. A client that is given to New does so.
//   - watchStreams: all watches of a client share a stream, and are made one after the
//     other. A stream keeps the token that it was opened with: the server refuses each
//     further watch when that token has run out (etcd-io/etcd#12385).
//   - watch: Watch blocks until the server has answered, with no timeout
//     (etcd-io/etcd#7247).
//   - watcher: the server tells a watch that begins in the past of nothing for up to
//     100 ms (etcd-io/etcd#16839).
//   - keepAlive: KeepAliveOnce repeats its request without a pause while the server is
//     away.
//   - deleteUnanswered: the library does not repeat a request that writes, and cannot say
//     whether one that failed was carried out (etcd-io/etcd#12020).
//   - checkAnswer: the library takes an answer that does not fit the question, and panics.
//   - reconnect and window: the pauses of gRPC between connections grow to two minutes,
//     which outlasts a lease, and it sends a ping with nearly every answer to measure the
//     connection (grpc/grpc-go#1310).
package etcd

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// DefaultPrefix is the prefix of all keys where none is given.
const DefaultPrefix = "dlock"

// Options configure a Backend. A nil *Options is the same as an empty one.
type Options struct {
	// Prefix stands, with a slash, before every key. Slashes around it do
	// not count. Empty means DefaultPrefix. No other prefix in use may begin
	// with this one and "/l/": its keys would be taken for those of a lock.
	Prefix string
}

// A Backend keeps locks in one etcd cluster.
type Backend struct {
	client  *clientv3.Client
	owned   bool          // client was made by open
	stopLog func()        // ends what the client's logger is told of gRPC, if owned
	ttl     time.Duration // of Config; zero: not known
	login   *login        // nil: no user is given
	members memberCheck
	failure *lastFailure
	prefix  string
	janitor backend.Janitor

	checkEvery time.Duration // by a waiter
	slots      chan struct{} // of requests that come in crowds
	streams    watchStreams
	roundTrip  backend.RoundTrip
	unanswered atomic.Int64 // requests without an answer since the last that had one
	created    time.Time
	lastAnswer atomic.Int64 // when the last answer came, in nanoseconds after created; zero: none came

	ctx   context.Context // of the sessions; ends with Close
	stop  context.CancelFunc
	calls backend.Calls

	mu     sync.Mutex
	groups map[int64]*sessionGroup // by TTL in seconds
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Expirer       = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
)

// New returns a backend on client, which stays the caller's. A client that
// sets DialKeepAliveTime notices sooner that a member has fallen silent.
func New(client *clientv3.Client, o *Options) *Backend {
	prefix := ""
	if o != nil {
		prefix = strings.Trim(o.Prefix, "/")
	}
	if prefix == "" {
		prefix = DefaultPrefix
	}
	b := &Backend{client: client, members: memberCheck{endpoints: client.Endpoints()}, failure: new(lastFailure), prefix: prefix + "/", checkEvery: checkEvery, slots: make(chan struct{}, maxRequests), streams: watchStreams{slots: make(chan struct{}, maxStreams)}, created: time.Now(), groups: make(map[int64]*sessionGroup)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Close implements backend.Backend. A cluster that does not answer keeps the
// locks until their leases run out.
func (b *Backend) Close(ctx context.Context) error {
	b.stop()
	if !b.calls.Close() {
		return nil
	}
	ctx, cancel := backend.Bound(ctx, revokeTimeout)
	defer cancel()
	err := b.endSessions(ctx)
	_ = b.janitor.Close(ctx) // what it leaves undone goes with the leases
	if b.owned {
		_ = b.client.Close() // it repeats that its context has ended
		b.stopLog()
	}
	return err
}

const (
	revokeTimeout = 3 * time.Second       // for revoking leases at Close
	answerGrace   = 50 * time.Millisecond // how long a caller whose ctx has ended waits for an answer that is on its way
	maxKeys       = 1000                  // per lease: revoking one deletes them in one step
	maxParts      = 120                   // of a transaction, which may have 128
	checkEvery    = 2 * time.Minute       // by a waiter, in case a watch is stuck
	maxRequests   = 128                   // under way, of those that come in crowds: to join, to look, to release
)

// The bounds of the timeout of one request, after which another member is asked.
const (
	minTimeout      = time.Second
	minTimeoutAlone = 1500 * time.Millisecond // of a single member: to ask a busy server again makes it busier
	maxTimeout      = backend.FirstAnswer
)

// request returns ctx with the timeout of one request. The caller calls the function that
// comes with it once the request has ended.
func (b *Backend) request(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, cancel := backend.Bound(ctx, b.timeout())
	return bound, func() {
		if bound.Err() != nil && ctx.Err() == nil {
			b.late()
		}
		cancel()
	}
}

// slot waits for one of the slots for requests that come in crowds, or until ctx is done.
// The timeout of a request begins afterwards: of a thousand requests at once a busy server
// answers the last ones too late, and what is repeated for that reason makes it busier.
// The caller calls the function that is returned once the request has ended.
func (b *Backend) slot(ctx context.Context) (free func(), err error) {
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	case <-ctx.Done():
		return nil, backend.WaitEnded(ctx, false)
	}
}

// timeout returns the timeout of one request. It leaves time to ask each of three members
// before an acquisition fails for want of an answer.
func (b *Backend) timeout() time.Duration {
	switch {
	case len(b.members.endpoints) <= 1:
		return b.roundTrip.Limit(minTimeoutAlone, maxTimeout)
	case b.lastAnswer.Load() == 0:
		return minTimeout
	}
	return b.roundTrip.Limit(minTimeout, maxTimeout)
}

// late notes a request without an answer. The timeout doubles once every member may have
// been asked: a silent one takes no time from the others.
func (b *Backend) late() {
	b.members.start(b)
	if b.unanswered.Add(1)%int64(max(len(b.members.endpoints), 1)) == 0 {
		b.roundTrip.Late()
	}
}

// answered notes the answer to a request that was sent then.
func (b *Backend) answered(sent time.Time) {
	now := time.Now()
	b.unanswered.Store(0)
	b.roundTrip.Observe(now.Sub(sent))
	b.lastAnswer.Store(now.Sub(b.created).Nanoseconds())
}

// silence is how long the cluster has not answered anything, at most since then.
func (b *Backend) silence(since time.Time) time.Duration {
	return min(time.Since(since), time.Since(b.created)-time.Duration(b.lastAnswer.Load()))
}
