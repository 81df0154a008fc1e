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
// A client has one session for all its locks, and a hold lasts as long as the
// session. That is why WithTTL cannot shorten or prolong what the server does
// for one lock: the lease of every hold is the session timeout, which the
// server grants within bounds of its own, 2 to 20 of its ticks by default. An
// Unlock that is not answered gives up after that time too.
//
// A hold is lost when the server says that the session has expired or the
// hold's node is gone, and in any case when the client has not heard from the
// leader for the session timeout. A connection that breaks and comes back
// within that time costs no lock, on another server of the ensemble neither.
// A hold is watched from its first renewal on, which takes a request for each.
// After that one request a renewal proves all holds together.
//
// An ensemble is assumed unless there is one host and ensemble=false: one name may
// stand for many. There a server
// tells the leader only twice a tick which sessions it has heard of, and takes
// what it has not told with it when it dies. The lease is counted from what the
// leader knows, for ticks of up to 2 s.
//
// A member that leaves a request unanswered for longer than answers have taken, a
// second at least, is left for another. With strict that takes two thirds of a
// session, because it costs every lock.
//
// Waiting is first come, first served, with a watch on one node: nobody polls
// and a release wakes one writer, or the readers that are next. Who joins a queue
// lists it once, about 50 bytes for each that is in it. The token is
// the id of the transaction that queued the holder, times 4096; a client that
// was alone with a lock lately goes on from its token before. It grows across
// restarts, and begins anew only if the ensemble loses its data.
//
// A holder hears of another client that waits at once if its client has been alone
// with the lock for some time, otherwise from the first renewal on. Neither costs a
// request while nobody waits.
//
// # Wire format
//
// A lock is a node named after it below the root. A client queues by an ephemeral
// sequential child, <guid>-w-<sequence> to write, <guid>-r-<sequence> to read, and
// sets the data of the lock's node in the same transaction: the answer tells when
// that was, which is the token, and whether anybody else is there. The data of a
// child is its rank, 0 for its own, the client's label, and behind a zero byte the
// token of its hold where its transaction does not tell. Children with other names are
// passed over.
//
// Whoever is not alone lists the children, and watches the last of those in its way.
// If that is the only one, its deletion lets the next in. If not, it may have gone
// without ever having had the lock. Therefore a writer that has waited says so when
// it gives the lock back: right before its child, and in the same transaction, it
// makes and deletes a child <guid>-w-<sequence>-free, for which the next in line
// watches as well. Whoever leaves the queue does the same after its child, which
// takes those watches off. Writing to a child lets nobody in.
//
// A downgrade replaces the writer's child by a reader's of the same guid, sequence
// and rank. It writes to the writer's child first, so that those who watch it see a
// change and not an end.
//
// A request that does not wait looks first. A writer's child is then made on
// condition that nobody has queued since.
//
// A writer that was alone with a lock several times makes its child only, and
// removes it unless it finds by the sequence that it is alone again.
//
// Whoever asks who holds a lock lists the children and reads each of them. A hold is
// broken by deleting its child: its owner hears of that as of any other loss.
//
// # Permissions
//
// Who can do what to a lock, and how to set a server up so that it holds, is told in
// docs/security.md.
//
// The client reads, creates, writes and deletes below the root, and creates the
// root and what is above it. Everything it creates has the ACL of the acl
// parameter or of Options.ACL.
//
// Without a user that lets everybody who reaches the server release locks, take them
// and read their labels. Connect logs a warning then, unless the ACL was chosen.
//
// With a user, Connect makes the root, and a child of it that stays, so that nobody
// can delete it while there is no lock and make it anew. It refuses a root that the
// world or an address may change, and each lock refuses such a node of its own.
// Strangers may create nodes below / by default, the root before anybody else has:
// on a server that is shared, create it beforehand, with an ACL for its user.
//
// # What stays
//
// The root stays. The node of a lock is a container: the server removes it some
// minutes after the last hold, up to 10,000 in a minute by default
// (znode.container.maxPerMinute), so that more names than that pile up. Servers
// before 3.5.3 have no containers: there the nodes of locks stay.
//
// # The driver
//
// The sessions are those of github.com/go-zookeeper/zk 1.0.4. What it does otherwise
// than a lock can bear is put right in these places:
//
//   - session: a Conn begins a new session by itself when one has expired, and runs on
//     it what was asked before. A Conn is used for one session here.
//   - hosts: its pause of a second between rounds of servers is left out.
//   - link: it does not tell which timeout the server has granted, and waits up to ten
//     timeouts for a greeting. Read along the connection, which also tells what was
//     asked when, and which lengths a server claims: the driver panics on a message
//     shorter than its head, and makes room for any number of children (the first is
//     bounded by WithMaxBufferSize for all but the greeting).
//   - link.Write: a failed write is answered twice, and blocks the driver if the
//     asker has left (samuel/go-zookeeper#253).
//   - vigil: it hears that a member is silent after two thirds of a session.
//   - rewatch: after a reconnect it reads answers while it gathers the watches to tell
//     the server (samuel/go-zookeeper#260, go-zookeeper/zk#35). It gives up telling
//     them after the first error: such a connection is broken here.
//   - farewell: Close lets requests return whose answers it still decodes
//     (go-zookeeper/zk#80 made that so).
//   - proof: it keeps the answers to its pings to itself, so that the lease is counted
//     from requests.
//   - attempt: no request takes a context (go-zookeeper/zk#67), nor ends before the
//     connection does. Each Lock that can be called away has a goroutine.
//   - marks of those who leave: a watch cannot be taken back (go-zookeeper/zk#87).
//   - errors: it has no values for unimplemented requests and for quotas, so that
//     their codes, -6 and -125, are recognised by its text.
//
// What it still does, in goroutines of its own, is to panic on an answer that lies
// about lengths inside in ways that the link does not look at.
package zk
