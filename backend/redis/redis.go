// Package redis keeps locks on a Redis or Valkey server, version 6.2 or later,
// on the master that Sentinels name, or on a cluster.
//
// # URL
//
//	redis://[user[:password]@]host[:port][/db]
//	rediss://...                              with TLS
//	unix://[user:password@]/path/of/socket?db=0
//	redis+sentinel://[user[:password]@]host[:port],host[:port]/master[/db]
//	redis+cluster://[user[:password]@]host[:port],host[:port]
//	rediss+sentinel://, rediss+cluster://     with TLS
//	valkey, valkeys                           other names of redis, rediss
//
// Sentinels listen on port 26379 unless the URL says otherwise, all others on
// 6379. User and password are those of the servers with data; Sentinels that
// want some get sentinel_username and sentinel_password. Of a cluster some nodes
// are enough, and those that move or are added later are found.
//
// The parameters are those of go-redis' ParseURL, ParseFailoverURL and
// ParseClusterURL (pool_size, dial_timeout, read_timeout, ...; max_retries is
// ignored), and:
//
//	dlock.wake=poll    do not subscribe; ask again and again
//	dlock.poll=50ms    how often the head of the queue asks where there is no
//	                   subscription; who is n places behind it asks n times more
//	                   rarely, but every 1.7 s, and three times a TTL, at least
//	dlock.keep=10m     how long the key of a free lock stays; see Options.Keep
//	dlock.replicas=1   how many replicas must have acknowledged a hold (WAIT)
//
// [New] takes a FailoverClient or a ClusterClient as well.
//
// # Guarantees
//
// Every operation on a lock is one script and one round trip. A lock that was free when
// this client last asked takes another one if it is not any more, and once in a tenth of
// the time that its key stays, or in a minute. Waiting is first
// come, first served: whoever releases the lock hands it to the next waiter,
// who is told by a message and need not ask. What can go wrong with messages is
// bounded by slow questions: no waiter that the server can reach sleeps on a
// free lock for longer than about 10 s and its own interval of 5 s or more.
//
// One server decides, so a server that loses its data loses its locks: their
// holders learn that at the next renewal, and until then a second holder is
// possible, as it is after the promotion of a replica. The fencing token keeps
// growing across both, because it is never behind the server's clock. One that
// [dlock.Client.Break] has raised is ahead of that by up to a lease, and may come
// again if the server loses its data within that time. Readers have the token that stands
// in the key of their lock: who puts that key back by hand, as RESTORE and RENAME do, has
// the next of them get an older one.
//
// # Replicas
//
// With dlock.replicas=n a hold is believed in only when n replicas have
// acknowledged it: a Lock that fewer acknowledge within half of its time for one
// reply (a sixth of the TTL, within 125 ms and 1 s) is ErrUnavailable, and given
// back. The question travels with the request and costs no round trip of its
// own; only a waiter to whom the lock is handed over asks first. Renewals ask as
// well, since a replica that has not heard of one would let the lock go sooner
// than its holder: without its replicas a master keeps its locks for no longer
// than their leases. Re-entry, downgrade and Unlock do not: what they do can be
// lost to no harm, as no belief rests on it. Without the parameter no replica is
// asked anything.
//
// No two hold one lock as long as a replica that has acknowledged takes over.
// With one replica, or with n as the number of them, that is always so, if its clock
// is right: see below. Of more than n Sentinel promotes the one that is furthest, among
// those that it reaches.
// While a slot moves, locks in it cannot be kept alive on the new node in this
// way until the move is over, and no replica there has acknowledged what has moved: one
// that takes over just then may not have it.
//
// # Sentinel and Cluster
//
// A request that meets a connection that breaks, a replica that was a master
// (READONLY), Sentinels that know no master, a slot that has moved (MOVED, ASK) or is
// on its way (TRYAGAIN), or a cluster that is down (CLUSTERDOWN) is made again for as
// long as it may take: a waiting Lock until its context ends, an Unlock and a renewal
// within the lease, a Lock that has never had an answer for 3 s. Open says at once that
// Sentinels know no master, as where the name is wrong. Waiters subscribe on the
// node that is written to: it says whether it counts them, and grants nothing to who
// is not there. One whose connection is to a master that has become its replica hears of
// that when it would have been next. They ask again when they have subscribed anew, and
// do that too when a subscription that lives lets nothing through.
//
// After a planned failover (CLUSTER FAILOVER, FAILOVER behind an address that stays)
// no hold is lost and no two hold a lock, as long as leases outlast it, and no slot moves
// in that shard: see below. After any other promotion what the replica had not been told
// is lost, as above.
//
// The end of a lease is a time of the server's clock. So a server that takes over and
// whose clock is ahead ends leases early by as much. Two may hold a lock if that is more
// than is left of a lease: half of the TTL at least, while renewals are in time.
// Run NTP on all servers. dlock doctor compares the clock of the one that it reaches.
//
// A server without memory for more (OOM) keeps its holds, and gives out what queues.
//
// In a cluster all keys of a lock are in one slot, whatever its name. A message
// to a waiter goes through its shard alone (SPUBLISH; before Redis 7 waiters
// poll), with one subscription for each lock that a client waits for. Each node
// has its own connections, pipelines and batches of renewals: one that hangs
// delays no lock on another. While a slot moves, locks in it are kept alive, but
// are neither granted nor released: a script may then use one key only.
//
// The client library goes on asking the Sentinel that it has a connection to. One that does not hear of the others,
// as one that was taken out and left running, names the master that it knows, and a client that asks it uses that,
// also if nothing answers there, until that Sentinel is stopped or told. dlock doctor asks all in the URL, and says
// which names another master than most.
//
// A node that was taken out of a cluster and lives on, as after redis-cli --cluster del-node,
// names nobody when it is asked who has which slots. A client that Open makes asks another node then. One
// of a program's own goes by that answer, if it asks that node, as it may for a minute: it sends requests to
// any node until it has asked another, which takes longer where addresses do not answer. Shut down nodes that
// were taken out.
//
// Where all nodes of a shard leave their addresses, and nothing answers there, as in containers, the client library
// tries one address after the other, each for 5 s, and a call has 3 s for its first answer. With dial_timeout=1s it
// comes to one that answers.
//
// Whether a slot moves is known to the two masters, and before Valkey 8, and on Redis, not to
// their replicas (CLUSTER SETSLOT, with which redis-cli moves slots, and not CLUSTER
// MIGRATION of Redis 8.4). So any failover of either shard, also a planned one, forgets a
// move that is under way. Where the slot leaves, the new master takes locks whose keys have gone
// for free ones: as after a loss of data, two may hold such a lock until who had it first renews,
// and the token keeps growing. The node that the slot was coming to says that the cluster is
// down, about all its locks, unless cluster-require-full-coverage is off. Where the slot comes
// to, the new master refuses the keys that it has, so that their locks are lost, and can be taken
// by nobody. It stays so until redis-cli --cluster fix. Fail over before slots move, or after.
//
// # Requests
//
// All requests go through the client library: on the client given to [New], or on
// one that Open makes. Its hooks see each of them. A request that leaves by itself
// carries the values of its caller's context, so that a span of redisotel has its
// parent; one that several callers share carries those of none. On a cluster hooks
// belong on its nodes (OnNewNode), as redisotel has them. The arguments of a request
// hold ids with which a lock can be released: have hooks record the command without
// them (redisotel.WithDBStatement(false)).
//
// Up to four pipelines are under way at a time, on connections of the client's
// pool; more only past some that do not come back. A reply that is late counts as
// none after ReadTimeout: a client of one's own should not do without it. Where
// ReadTimeout is so short, as 50 ms, that an answer now and then comes later, calls may be
// ErrUnavailable though the server is well; leases of more than forty round trips go on: go-redis makes a new
// connection then, which takes such a client four, and each try to renew has a sixth of the lease. Nor should its pool
// be of one connection: one that stalls takes up all of it for ReadTimeout, which is 5 s
// where nothing is said, and a lock that was granted to a waiter is lost after as long
// unless that is confirmed. MaxActiveConns, if set, should be four or more: where all are in
// use a request is refused at once, which Ping, Examine and Names of a quorum say, and others
// make again. With Sentinels it has to be more than MinIdleConns, or the client library finds
// no master.
//
// A circuit breaker of a program's own (Limiter, or a hook) that refuses requests for
// longer than a lease has left costs that lease. One that is a hook sees, within the
// request that it lets pass, those that make a connection ready: it must let them pass, too. A
// Limiter is asked for each of them: one that lets a single request pass to try lets none through.
//
// What is on the way to the server, as a load balancer or a firewall, may forget a connection
// that is idle and tell nobody. A request on it is late, and after some of them a Lock is
// ErrUnavailable though the server is well. TCP keep-alive, which go-redis begins after 30 s,
// prevents most of that, and does not where it is not passed on or the machine sleeps. A client
// that Open makes also uses no connection that was idle for 3 minutes, or for
// conn_max_idle_time: large clouds forget after 4 minutes. For go-redis by itself that is 30
// minutes: a client of one's own should set ConnMaxIdleTime, and a Dialer of its own keep-alive.
//
// A server that ends idle connections (its timeout) ends those, too, that MinIdleConns has made and nobody has used.
// On each of them go-redis repeats what it says first, as often as MaxRetries says, and pauses before: for up to
// 0.17 s where nothing is said of it. A renewal waits for that. A client that Open makes does not.
//
// The client library logs to stderr, for the whole process, that it cannot dial and
// which master a Sentinel has named. What it logs about a client that Open has made goes
// to Options.Logger instead, at Debug: what concerns locks is in errors. For that this
// package calls redis.SetLogger when it is initialized. Lines about other clients go
// to stderr as before. A program that calls redis.SetLogger later has all lines.
//
// # Wire format
//
// Each lock is a hash, dlock:{name}, with the holder (o), the times it has
// entered (n), the end of its lease in ms (e) and the last token (t); and sorted
// sets for readers (:r), the queue (:q), the liveness of those in it (:a) and
// ids that must not come back (:x). The other fields of the hash save the
// scripts a look elsewhere: what there may be in the sets (b), until when the
// key is kept (d), when the queue has to be looked after (a), the last place in
// it (l), the order of messages about re-entry (s) and the exclusive hold that was last
// taken away by Break (x). A free lock is one small
// key, which goes 10 to 11 minutes after its last lease (dlock.keep). The channel of a client
// is dlock:c:<client>, in a cluster dlock:{name}:c:<client>.
// An id is w or r, the TTL in ms, in a quorum v and for how many ms the server must
// have kept its data, the client, the number of the request, the label if there is one,
// and 64 bits of HMAC-SHA-256 over that and the key, by a secret of the client's own. It stands
// in the keys, and is told in full only to whom it is granted. A hold that was left to
// expire has a ! behind its id.
// The hash dlock:boot of a server that is one of a quorum says in µs since when
// the server has kept its data (since), in which run of the server that was found out
// (run), and whether every write was on disk before its reply (durable).
//
// # Who holds a lock
//
// Inspect and Names ask only, and Inspect tells of one moment as long as there are no
// more than 250 readers and 250 waiters. Since when a waiter waits is known, and since
// when a writer holds the lock, but not since when a reader does. Names looks at
// all keys of the database, page by page, on each master of a cluster. A holder from
// which Break takes the lock away hears of it by a message, as a waiter hears of a grant,
// or else with its renewal. The next token is then as high as any that the holder may have
// handed on: it may be ahead of the clock by the rest of the lease, and for so long the
// server does not know since when the next holder has the lock, which is not passed on
// within a client either.
//
// Of more than a thousand readers those whose leases end first hear with their next renewal
// that somebody waits. One with WithMaxHold, which is not renewed, may not hear of it then.
//
// # Permissions
//
// Who can do what to a lock, on this and other servers, and how to set one up so that it
// holds, is told in docs/security.md. The parameter skip_verify=true of go-redis turns off
// all that TLS protects from.
//
// A user needs no more than this:
//
//	ACL SETUSER dlock on >password resetkeys ~dlock:* resetchannels &dlock:*
//	  -@all +hello +auth +ping +select +client|setname +info +eval +evalsha
//	  +time +exists +hmget +hset +hdel +pexpire +zadd +zrem +zcard +zscore
//	  +zrank +zrange +zrevrange +zrangebyscore +zremrangebyscore
//	  +publish +pubsub|numsub +subscribe +unsubscribe
//
// with dlock.replicas +wait, for Names +scan, and in a cluster +cluster|slots +asking
// +spublish +pubsub|shardnumsub +ssubscribe +sunsubscribe.
//
// Who may only publish, and cannot read the keys, can make no client believe anything,
// release anything, or do more than compare. Who may subscribe to the channels too hears
// ids as they are granted: leave &dlock:* to those who may use the locks.
//
// Inspect, Names and Ping need no more than %R~dlock:* (on 6.2 ~dlock:*) and
//
//	+hello +auth +ping +select +eval_ro +time +hmget +zscore +zrevrange +zrangebyscore +scan
//
// on 6.2 +eval +evalsha for +eval_ro, and in a cluster +cluster|slots +asking. Examine
// says more of a cluster with +cluster|info +cluster|nodes.
//
// A member of a quorum wants +config|get, too, or its restarts with whole data pass for
// others. Without +info Open cannot warn of a server that evicts keys, and a member of
// a quorum cannot tell that it has restarted with old data; without the last
// line waiting goes on by polling, and a subscription is tried again every 30 s. The
// server should run with the maxmemory-policy noeviction.
package redis

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// DefaultPoll is how often a waiter asks that nobody can call.
const DefaultPoll = 50 * time.Millisecond

// Options are the settings of a Backend. The zero value is ready to use.
type Options struct {
	// PollOnly does without a subscription: waiters ask again and again.
	PollOnly bool

	// Poll is how often the head of the queue asks where there is no subscription.
	// Zero means DefaultPoll.
	Poll time.Duration

	// Replicas is how many replicas must have acknowledged a hold before it is
	// believed in. Zero or less means none, and asks none.
	Replicas int

	// Keep is for how long after its last lease the key of a free lock stays, with the
	// token in it: some 185 bytes, and up to a tenth of Keep longer. Zero means 10
	// minutes, and less than a second means one. Tokens keep growing while the server's
	// clock is set back by less than Keep; who takes a lock first that was free for longer
	// needs two round trips.
	Keep time.Duration

	// Logger is told what works less well than it should. Nil discards it.
	Logger *slog.Logger
}

// A Backend keeps locks on one server, on the one that a Sentinel names, or on
// a cluster.
type Backend struct {
	client      redis.UniversalClient
	owned       bool // close it too
	log         *slog.Logger
	member      bool  // of a quorum, by its URL
	inspectOnly bool  // it takes no lock
	unfit       error // why it is of no use, or nil
	poll        time.Duration
	transport   transport
	cluster     *cluster               // nil unless it is one
	failover    *redis.FailoverOptions // nil unless a URL names Sentinels
	listener    *listener
	free        *freeCache
	ids         *idSigner // no reflection prints it
	dialect     dialect
	unclaimed   unclaimedGrants

	used atomic.Bool // by a script
	mute atomic.Bool // it may send no messages

	replicas int
	watch    watch

	janitor backend.Janitor
	denied  backend.Denied
	calls   backend.Calls // of Acquire, and questions
}

var (
	_ backend.Backend       = (*Backend)(nil)
	_ backend.Renewer       = (*Backend)(nil)
	_ backend.Reenterer     = (*Backend)(nil)
	_ backend.Downgrader    = (*Backend)(nil)
	_ backend.Transferer    = (*Backend)(nil)
	_ backend.BatchReleaser = (*Backend)(nil)
	_ backend.Expirer       = (*Backend)(nil)
	_ backend.TokenRegister = (*Backend)(nil)
	_ backend.Examiner      = (*Backend)(nil)
	_ backend.Inspector     = (*Backend)(nil)
	_ backend.Breaker       = (*Backend)(nil)
	_ backend.Pinger        = (*Backend)(nil)
)

// New returns a backend on a client that stays the caller's. Whatever its
// MaxRetries, commands of the backend are not repeated by it. It is used with
// one subscription, and must not be closed before the backend. With a [redis.Ring],
// or none, every Acquire fails with ErrInvalidConfig: the servers of a ring know
// nothing of each other's messages, and renewals are for locks of one server.
func New(client redis.UniversalClient, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Backend{
		client:   client,
		log:      log,
		unfit:    unfit(client),
		poll:     o.Poll,
		replicas: max(o.Replicas, 0),
		free:     newFreeCache(),
		ids:      newIDSigner(),
		dialect:  dialect{keep: max(cmp.Or(o.Keep, defaultKeep), minKeep)},
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		b.cluster, b.dialect.cluster = newCluster(c, b.replicas), true
		b.transport = b.cluster
	} else {
		b.transport = newPipeline(client, b.replicas)
	}
	b.listener = newListener(client, b.cluster, log, o.PollOnly)
	if b.poll <= 0 {
		b.poll = DefaultPoll
	}
	b.listener.onUnclaimed = b.releaseUnclaimed
	return b
}

// unfit says why a client is of no use, or nil.
func unfit(client redis.UniversalClient) error {
	switch c := client.(type) {
	case nil:
		return backend.Fail(backend.ErrInvalidConfig, errors.New("no client"))
	case *redis.Ring:
		return backend.Fail(backend.ErrInvalidConfig, errors.New("a redis.Ring, whose servers know nothing of each other"))
	case *redis.ClusterClient:
		if c.Options().ReadOnly { // the other two set it
			return backend.Fail(backend.ErrInvalidConfig,
				errors.New("a redis.ClusterClient with ReadOnly, RouteByLatency or RouteRandomly, which reads from replicas"))
		}
	}
	return nil
}

const (
	// closeTimeout bounds Close on a server that does not answer.
	closeTimeout = 5 * time.Second

	// endTimeout is how long Close waits for subscriptions to end when its context is done.
	endTimeout = 250 * time.Millisecond
)

// Close implements backend.Backend. On a server that does not answer it returns
// after about 5 s, with an error that names the holds that may still be there.
func (b *Backend) Close(ctx context.Context) error {
	if !b.calls.Close() {
		return nil
	}
	ctx, cancel := backend.Bound(ctx, closeTimeout)
	defer cancel()
	err := b.releaseRest(ctx)
	if e := b.janitor.Close(ctx); err == nil && e != nil {
		err = fail(e)
	}
	b.endWatch(ctx) // now that who waited has left the queues
	b.endSubscriptions(ctx)
	if b.owned {
		_ = b.client.Close()
	}
	return err
}

// endSubscriptions ends the subscriptions. One whose connection is just being made ends when the
// client library has given that up, which nobody waits for once ctx is done.
func (b *Backend) endSubscriptions(ctx context.Context) {
	var end backend.Janitor
	end.Go(func(context.Context) { b.listener.close() })
	_ = end.Close(ctx)
	ctx, cancel := backend.Detach(ctx, endTimeout)
	defer cancel()
	_ = end.Close(ctx)
}

// channelOf is the name of the channel on which a client is told something about a lock.
// On a cluster its tag puts it where the lock is.
func (b *Backend) channelOf(k key, client string) string {
	if b.cluster != nil {
		return string(k) + shardChannel + client
	}
	return channelPrefix + client
}
