// Package dlock is a distributed lock: a name that one holder at a time has,
// across goroutines, processes and machines.
//
// A [Client] is one party on a backend. It hands out [Mutex], [RWMutex] and
// [Multi] by name, and they hand out a [Lease] for each entry:
//
//	client, err := dlock.Open(ctx, "redis://localhost:6379", nil)
//	...
//	err = dlock.Do(ctx, client.Mutex("orders/42"), func(ctx context.Context, lease *dlock.Lease) error {
//		return settle(ctx, 42, lease.Token())
//	})
//
// # Backends
//
// A URL chooses the backend; see [Open]. The program imports the backend's package for
// its side effect: backend/redis, etcd, zk, pg, file, memory or quorum, or backend/all,
// which has them all. The documentation of that package says what the backend guarantees,
// and which parameters its URL has.
//
// # What is promised
//
// At most one exclusive holder, or any number of readers, hold a lock at one
// time, as long as every holder runs: a hold is renewed in the background, and
// its [Lease] ends before the server gives the lock to somebody else, whether
// or not anybody can say so. Waiting is first come, first served. A holder that
// dies frees the lock within its TTL; on etcd, ZooKeeper and Postgres it can take
// longer, as their packages say. A call's context
// bounds the waiting, and has no say once the lock is held. Every call that waits
// ends.
//
// # What cannot be promised
//
// A process can be stopped, by its machine or its scheduler, at any moment, and
// act on what it believed before. No lock service can prevent that. What can
// is the store that the work goes to: it keeps the greatest [Lease.Token] that
// it has seen and refuses a smaller one.
//
// # Re-entry
//
// Go has no thread to own a lock. What owns it is a chain of calls: whoever
// has a context made by [Lease.Context] enters the lock again. Goroutines that
// share such a context exclude one another, as on any lock, and each one's own
// calls nest. So a lock can be taken in a function whether or not its caller
// has it, and children of an errgroup are still one at a time. With any other
// context a call waits, also for a lock that its own caller has.
package dlock
