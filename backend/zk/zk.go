// Package zk keeps locks on ZooKeeper, from version 3.4 on.
//
// # URL
//
//	zk://[user:password@]host[:port][,host[:port]...][/root][?parameters]
//
// The port is 2181 unless given. Locks are kept below root, /dlock unless
// given, which belongs to this package alone. With a user, the client
// authenticates by the digest scheme. The parameters are
//
//	session   the session timeout to ask for, the client's TTL unless given
//	ensemble  false if there is a single server, which is then asked less
//	strict    true to give up every lock as soon as the connection breaks
//	tls       true to encrypt, as a TLS configuration in the options does too
//	ca        a file of the certificates that vouch for the servers, in place of
//	          those of this machine; it implies tls, as cert and key do
//	cert, key files of the client's own certificate and its key
//	acl       creator: only the same user may touch what this client makes,
//	          which is the default with a user; open: everybody may, which is
//	          the default without
//
// # Guarantees
//
// A client has one session for all its locks, or several if they are many, and a hold lasts
// as long as its session. So the session timeout stands for the TTL of every lock, whatever
// WithTTL says, and for the time that an Unlock waits for an answer. The server grants a
// timeout within bounds of its own, 2 to 20 of its ticks by default.
//
// A hold is lost when the server says that the session has expired or the hold's node was
// deleted, and in any case when the leader has not answered for the session timeout. A
// connection that breaks and comes back within that time costs no lock, on another server
// of the ensemble neither. A hold is watched from its first renewal on, which takes a
// request for each hold. After that one request renews all holds of a session. A waiter whose
// node was deleted queues anew: its node is watched once it has waited for a fifteenth of the
// session timeout. Who is granted the lock sooner is renewed as early.
//
// The client assumes an ensemble unless there is one host and ensemble=false: one name may
// stand for many servers. A member of an ensemble tells the leader only twice a tick which
// sessions it has heard of, and when it dies the leader does not learn of the rest. The
// lease is counted from what the leader knows, for ticks of up to 2 s.
//
// If a member leaves a request unanswered for longer than its answers have taken so far,
// and for a second at least, the client connects to another. With strict it waits for two
// thirds of the session timeout, because a broken connection costs every lock.
//
// Waiting is first come, first served. Each waiter watches one node: nobody polls, and a
// release wakes one writer, or the readers that are next. A request that joins a queue
// lists it once, about 50 bytes for each request in it, unless there are more than 256: then
// it asks for the one that joined before. The token is the id of the transaction in which
// the holder joined the queue, times 4096; a client that has been alone with a lock counts on
// from its token before. Tokens grow across restarts, and begin anew only if the ensemble
// loses its data.
//
// A holder hears of another client that waits at once if its client has been alone with
// the lock for some time, otherwise from the first renewal on. Neither costs a request
// while nobody waits.
//
// # Wire format
//
//	<root>/<name>                          the lock's node
//	<root>/<name>/<guid>-w-<sequence>      holds or waits, exclusive
//	<root>/<name>/<guid>-r-<sequence>      holds or waits, shared
//	<root>/<name>/<guid>-w-<sequence>-free the signal of a writer
//	<root>/.dlock/<id>-<version>           an announcement in a long queue
//
// The name is encoded by backend.EncodeName. A request joins the queue by an ephemeral
// sequential child, and writes to the lock's node in the same transaction. The answer
// tells which transaction that was, which is the token, and whether the node is the only
// child. A child that somebody else makes without that write may be overlooked. The data of
// a child is its rank, 0 for its own transaction, and the client's label; after a zero byte
// follows the token, if that is not the child's own transaction. Children with other names
// are ignored.
//
// A request that is not alone lists the children, and watches the last of its
// predecessors. If there is only one, its deletion grants the lock. If there are several,
// the last may be deleted without ever having had the lock. Therefore a writer that has
// waited sends a signal with its release: in the transaction that deletes its child it
// first creates and deletes the child <guid>-w-<sequence>-free, for which the next in line
// watches as well. A waiter that leaves the queue, and who replaces a child, send the signal
// after its deletion: that only removes the watches. A write to a child grants nothing.
//
// Where the lock's node has many children, a request announces its child by an ephemeral
// node: its name has the id of the transaction, in hexadecimal, that created the lock's node,
// and the version of that after the request's own write, and its data are the name of the
// child. A reader adds, after a space, the name of the writer that it waits for. The next to
// join finds its predecessor under the version before its own, and does not list. As its
// deletion proves nothing about those before it, only a signal lets in; after anything
// else, or if there is no such announcement, it lists. Who need not wait any more deletes its
// announcement.
//
// A downgrade replaces the writer's child by a reader's with the same guid, sequence and
// rank. It writes to the writer's child first, so that those who watch that see a change
// and not an end.
//
// A request that does not wait lists the queue first. It creates a writer's child on the
// condition that nobody has joined the queue since.
//
// A writer that was alone with a lock several times creates its child without the write to
// the lock's node, and deletes the child unless the sequence shows that it is alone again.
//
// Inspect lists the children of a lock and reads each of them. Break deletes the child of
// the hold, and in the same transaction writes its guid to the data of <root>/.dlock, which
// has those of the last 128. A holder whose child has gone looks there, to tell Break from
// a deletion by hand.
//
// # Many locks
//
// When a session ends, the server writes the paths of all its nodes in one transaction. At a
// restart it reads back none of more than twice its jute.maxbuffer, 2 MiB by default, and does
// not start. So a session takes requests for 512 KiB of paths at most. A lock, or a wait for
// one, counts for the bytes of the root and of the encoded name, and 97 more: that is
// 4,400 names of 16 bytes below /dlock, or 2,000 of 160. Whoever has more gets a further
// session, with a connection of its own, which ends when it holds nothing any more. A server
// allows 60 connections from one address by default (maxClientCnxns). If it allows no more,
// Lock fails with ErrUnavailable until there is room in the sessions that there are.
//
// # Permissions
//
// Who can do what to a lock, and how to set a server up so that it holds, is told in
// docs/security.md.
//
// The client reads, creates, writes and deletes below the root, and creates the root and
// the nodes above it. Everything that it creates has the ACL of the acl parameter or of
// Options.ACL.
//
// Without a user that ACL lets everybody who reaches the server release locks, take them
// and read their labels. Connect logs a warning then, unless the ACL was chosen.
//
// With a user, Connect creates the root, and its child .dlock, so that nobody can delete the
// root while there is no lock and create it as their own. Connect refuses a root that the
// world or an address may change, and each lock refuses such a node of its own. By default
// strangers may create nodes below /, the root before anybody else has: on a server that is
// shared, create it beforehand, with an ACL for its user.
//
// # What stays
//
// The root and its child .dlock stay. The node of a lock is a container: the server deletes
// it some minutes after the last hold, up to 10,000 in a minute by default
// (znode.container.maxPerMinute), so that more names than that pile up. Servers before 3.5.3
// have no containers: there the nodes of locks stay.
//
// # The driver
//
// Requests go through github.com/go-zookeeper/zk 1.0.4. These places are there because of
// what it does otherwise than a lock needs:
//
//   - session: a Conn begins a new session by itself when one has expired, and carries out
//     in it what was asked before. A Conn is used for one session here.
//   - hosts: it pauses for a second between rounds of servers.
//   - connection: it does not tell which timeout the server has granted, and waits up to
//     ten timeouts for the first message. It panics on a message shorter than its head,
//     and makes room for any number of children; WithMaxBufferSize bounds every message
//     but the first. The connection reads along, and refuses such messages.
//   - connection.Write: it answers a request twice if a write fails, and blocks if the
//     caller has left (samuel/go-zookeeper#253).
//   - timeout: it gives a silent member up after two thirds of a session.
//   - watchReset: after a reconnect it reads answers while it collects the watches to tell
//     the server (samuel/go-zookeeper#260, go-zookeeper/zk#35). It stops telling them after
//     the first error: such a connection is closed here.
//   - createContainer: it returns from Close while it still decodes the answer
//     (go-zookeeper/zk#80 made that so).
//   - renew: it does not pass on the answers to its pings, so that a lease is counted from
//     requests.
//   - acquisition: no request takes a context (go-zookeeper/zk#67), nor ends before the
//     connection does. Each Acquire has a goroutine.
//   - signals of waiters that leave: a watch cannot be taken back (go-zookeeper/zk#87).
//   - errors: it has no values for unimplemented requests and for quotas. Their codes, -6
//     and -125, are recognised by its text.
//
// In goroutines of its own it still panics on an answer that lies about lengths inside in
// ways that the connection does not check.
package zk

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// Options configure a Backend. A nil *Options is the same as an empty one.
type Options struct {
	// Root is the path below which locks are kept. It is created when the
	// first lock is taken, or by Connect if the ACL is closed to the world, and
	// stays. Empty means /dlock.
	Root string

	// SessionTimeout is the session timeout to ask the server for, which
	// grants one within bounds of its own. Zero means 30 s.
	SessionTimeout time.Duration

	// Strict gives up every hold as soon as the connection breaks, without
	// waiting for whether it comes back within the session.
	Strict bool

	// Standalone says that there is one server and no ensemble. It is ignored
	// with several addresses. Without it a member may be behind, so that a request
	// that does not wait asks twice before it is told that the lock is held, and
	// may have died without telling the others which clients it has heard of, so
	// that a lease counts for less.
	Standalone bool

	// Credentials, if not nil, is asked for the user and password of the
	// digest scheme whenever a session begins.
	Credentials func(context.Context) (user, password string, err error)

	// ACL is for every node that is created. Nil means all rights, for the
	// user if there are Credentials, else for everybody: then everybody who
	// reaches the server may take the locks away. With an ACL that is closed to
	// the world, so must be the root and what is below it, whoever made it.
	ACL []gozk.ACL

	// TLS, if not nil, is used for every connection.
	TLS *tls.Config

	// Logger is told of connections that fail. Nil means nobody.
	Logger *slog.Logger
}

const (
	defaultRoot    = "/dlock"
	defaultTimeout = 30 * time.Second
)

// complete returns o with its defaults filled in.
func (o *Options) complete() (Options, error) {
	c := *o
	c.Root = cmp.Or(strings.TrimRight(o.Root, "/"), defaultRoot)
	c.SessionTimeout = cmp.Or(o.SessionTimeout, defaultTimeout)
	if c.SessionTimeout < backend.MinTTL || c.SessionTimeout > backend.MaxTTL {
		return c, backend.Fail(backend.ErrInvalidTTL, fmt.Errorf("session timeout of %v", c.SessionTimeout))
	}
	if c.ACL == nil && c.Credentials != nil {
		c.ACL = gozk.AuthACL(gozk.PermAll)
	}
	if c.ACL == nil {
		c.ACL = gozk.WorldACL(gozk.PermAll)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// A Backend is one client of a ZooKeeper ensemble.
type Backend struct {
	opts         Options
	servers      []string
	janitor      backend.Janitor
	calls        backend.Calls // of Acquire
	checkEvery   time.Duration // by a waiter
	manyChildren int32         // of a lock's node: with more, requests that join announce themselves
	noContainers atomic.Bool   // the server has no container nodes
	connecting   connecting

	mu       sync.Mutex
	sessions []*session // the newest last; those that have ended go at the next request
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// Connect returns a client of the ensemble whose members are servers, each as
// host:port. A nil *Options is the same as an empty one. Connect opens a
// session, checks the root, and gives up after backend.FirstAnswer or when ctx is done.
//
// A Conn of the driver cannot be given instead: it does not tell which session timeout
// was granted, tells late that the session has expired, and carries the requests of an
// expired session out in the next.
func Connect(ctx context.Context, servers []string, o *Options) (*Backend, error) {
	if len(servers) == 0 {
		return nil, backend.Fail(backend.ErrInvalidConfig, errors.New("no servers"))
	}
	if o == nil {
		o = &Options{}
	}
	opts, err := o.complete()
	if err != nil {
		return nil, err
	}
	opts.Standalone = opts.Standalone && len(servers) == 1
	b := &Backend{opts: opts, servers: slices.Clone(servers), checkEvery: checkEvery, manyChildren: manyChildren}
	if err := b.connect(ctx); err != nil {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		go b.Close(ctx) // does not return before the driver, which takes a second
		return nil, err
	}
	if o.ACL == nil && o.Credentials == nil {
		opts.Logger.Warn("dlock: zookeeper: without a user, everybody who reaches the server may take locks away")
	}
	return b, nil
}

// do returns the error of f, or that of ctx if it is done first. It leaves f running,
// which returns when its session ends at the latest.
func (b *Backend) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !b.janitor.Go(func(context.Context) { done <- f() }) {
		return backend.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return backend.WaitEnded(ctx, false)
	}
}

// query calls read until that has an answer, or until ctx is done. If the session expires
// meanwhile it begins another: this machine or the network was too slow. A missing node is
// no error.
func query[T any](ctx context.Context, b *Backend, read func(*session) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var answer T
	err := b.do(ctx, func() error {
		var pause backend.Backoff
		for {
			s, err := b.session(0)
			if err != nil {
				return err
			}
			if err = s.awaitReady(ctx.Done()); err == nil {
				answer, err = read(s)
			}
			switch {
			case errors.Is(err, errSessionEnded) && backend.HasKind(s.endCause()):
				return s.endCause()
			case backend.HasKind(err), !isUnclear(err) && !errors.Is(err, errSessionEnded), !backend.Sleep(ctx, pause.Next()):
				return classify(err)
			}
		}
	})
	if err != nil {
		var none T
		return none, backend.At(b.servers, err)
	}
	return answer, nil
}

// dirOf is the path of the lock's node.
func (b *Backend) dirOf(name string) string { return b.opts.Root + "/" + backend.EncodeName(name) }

// Close implements backend.Backend. The server deletes the nodes with the session.
func (b *Backend) Close(ctx context.Context) error {
	if !b.calls.Close() {
		return nil
	}
	b.mu.Lock()
	sessions := b.sessions
	b.sessions = nil
	b.mu.Unlock()
	for _, s := range sessions {
		s.end(backend.ErrClosed)
		defer context.AfterFunc(ctx, s.closeConnection)()
	}
	return b.janitor.Close(ctx)
}
