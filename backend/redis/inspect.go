package redis

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// Ping implements backend.Pinger. On a cluster it asks one node. A replica is ErrUnavailable:
// it grants no lock, and what it shows may be old. So is a server that keeps scripts waiting. A
// connection that broke while nobody used it says nothing of the server, nor does one to a master
// that has become a replica, where the address stands for another server since.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	if err := b.isUsable(); err != nil {
		return "", err
	}
	version, err = b.pingPastBroken(ctx)
	if !errors.Is(err, errReplica) {
		return version, err
	}
	for range b.idlePipelines() {
		_, left := inTime(ctx, func(ctx context.Context) (bool, error) {
			leaveOldMaster(ctx, b.client, pipelined)
			return true, nil
		})
		if left != nil {
			return version, err
		}
		if version, err = b.pingPastBroken(ctx); !errors.Is(err, errReplica) {
			return version, err
		}
	}
	return version, err
}

// pingPastBroken pings past connections that broke while nobody used them.
func (b *Backend) pingPastBroken(ctx context.Context) (version string, err error) {
	for again := (repeat{}); ; {
		version, err = b.pingOnce(ctx)
		if err == nil || !again.isStale(b, err) || ctx.Err() != nil {
			return version, err
		}
	}
}

func (b *Backend) pingOnce(ctx context.Context) (version string, err error) {
	ping := &request{args: []any{"ping"}}
	hello := &request{args: []any{"hello"}} // answers while the server is loading, too
	all := []*request{ping, hello}
	// A server that keeps scripts waiting answers all else but these (CLIENT PAUSE WRITE, FAILOVER).
	waits, mute := &request{args: []any{"publish", nobody, ""}}, b.mute.Load()
	if mute {
		waits = &request{args: []any{"eval", "return 1", 0}}
	}
	if b.cluster == nil && !b.inspectOnly && (!mute || b.used.Load()) {
		all = append(all, waits)
	}
	_, err = inTime(ctx, func(ctx context.Context) (bool, error) {
		return process(ctx, b.client, all), nil
	})
	if err != nil {
		return "", fail(err)
	}
	if ping.err != nil {
		return "", fail(ping.err)
	}
	if _, refused := replyOf(waits.err); waits.err != nil && !refused {
		return "", fail(waits.err)
	}
	if !mute && kindOf(waits.err) == backend.ErrAuth {
		b.mute.Store(true)
		return b.pingOnce(ctx)
	}
	version, role := helloField(hello.reply, "version"), helloField(hello.reply, "role")
	if b.cluster == nil && role == "replica" {
		return version, fail(errReplica)
	}
	return version, nil
}

// nobody is the name of a channel where nobody listens, and of a key that there is not.
const nobody = prefix + "nobody"

var errReplica = errors.New("the server is a replica: use the address of its master, or Sentinel")

// helloField is one field of the reply to HELLO, empty if there is none.
func helloField(hello any, name string) (value string) {
	switch fields := hello.(type) {
	case map[any]any:
		value, _ = fields[name].(string)
	case []any:
		if i := slices.Index(fields, any(name)); i >= 0 && i+1 < len(fields) {
			value, _ = fields[i+1].(string)
		}
	}
	return value
}

// isUsable returns why b can be asked nothing, or nil.
func (b *Backend) isUsable() error { return cmp.Or(b.unfit, b.calls.Err()) }

// Inspect implements backend.Inspector. Since when a reader has the lock the server does
// not know.
func (b *Backend) Inspect(ctx context.Context, name string) (backend.Snapshot, error) {
	if b.unfit != nil {
		return backend.Snapshot{}, b.unfit
	}
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return backend.Snapshot{}, err
	}
	defer end()
	var out backend.Snapshot
	told, readers, after := make(map[string]bool), readersWalk{limit: page}, "-1"
	for {
		call, sent := inspectScript.callWith(lockKey(name), 4, readers.from, readers.limit, after), time.Now()
		a, err := b.runUntilAnswered(ctx, backend.FirstAnswer, inspectScript, call, nil)
		if err != nil {
			return backend.Snapshot{}, err
		}
		next, ok := a.at(7).(string)
		last, ok2 := a.at(10).(string)
		if !ok || !ok2 || a.int(0) <= 0 {
			return backend.Snapshot{}, fail(errGarbled)
		}
		took := time.Since(sent)
		addParties(&out, a, told)
		if a.int(8) == 0 {
			return out, nil
		}
		after = next
		readers.goOn(a, last, len(out.Holders))
		backend.Rest(ctx, took, backend.MaxRest)
	}
}

// A server tells of so many readers, waiters or names at a time, in some tenths of a
// millisecond.
const page = 250

// noMore is the end of a lease that no reader has.
const noMore = "+inf"

// A readersWalk goes through readers in the order in which their leases end. Who renews
// meanwhile comes later, perhaps again and again.
type readersWalk struct {
	from    string // the end of the lease of the last one looked at
	limit   int    // how many to look at next
	found   int    // how many there have been
	inVain  int    // pages on which there was none but of before
	skipped int    // found when those were passed over
	longest int64  // TTL of one of them, in ms
}

// goOn notes a page, whose last lease ends then, and how many have been found with it.
func (w *readersWalk) goOn(a answer, last string, found int) {
	for id := range a.pairs(5) {
		w.longest = max(w.longest, ttlOf(id))
	}
	w.inVain++
	if found > w.found {
		w.found, w.inVain = found, 0
	}
	switch {
	case last == noMore, w.inVain*page > 2*found && w.skipped == found:
		w.from = noMore
	case w.inVain*page > 2*found: // they renew faster than they can be told of: none has a lease beyond that
		w.from, w.limit = strconv.FormatInt(a.int(0)/1000+w.longest, 10), page
		w.skipped, w.inVain = found, 0
	case last == w.from:
		w.limit *= 2 // all of a page end at once
	default:
		w.from, w.limit = last, page
	}
}

// addParties adds those of a page, but for whom was told of before. The lock may change hands
// between pages: the first says who has it, and a waiter stays one.
func addParties(out *backend.Snapshot, a answer, told map[string]bool) {
	us, expiry, token := a.int(0), a.int(3), uint64(max(a.int(4), 0))
	if holder, _ := a.at(1).(string); holder != "" && len(told) == 0 {
		told[holder] = true
		p := partyOf(holder)
		p.Entries, p.Token = max(int(a.int(2)), 1), token
		p.Left = between(us, expiry)
		if token <= uint64(us+backend.TokenLead.Microseconds()) { // after Break it is not when it was granted
			p.Since = time.UnixMicro(int64(min(token, uint64(us))))
		}
		out.Holders = append(out.Holders, p)
	}
	own := make(map[string]int64)
	for id, token := range a.pairs(9) {
		own[id] = token
	}
	for id, till := range a.pairs(5) {
		if told[id] {
			continue
		}
		told[id] = true
		p := partyOf(id)
		p.Mode, p.Entries = backend.Shared, 1 // an id stays as it is at a downgrade
		p.Token, p.Left = token, between(us, till)
		if t, ok := own[id]; ok {
			p.Token = uint64(max(t, 0))
		}
		out.Holders = append(out.Holders, p)
	}
	for id, rank := range a.pairs(6) {
		if told[id] {
			continue
		}
		told[id] = true
		p := partyOf(id)
		p.Since = time.UnixMicro(rank)
		out.Waiters = append(out.Waiters, p)
	}
}

// pairs are the texts and numbers in turn that the i-th value is a list of.
func (a answer) pairs(i int) iter.Seq2[string, int64] {
	list, _ := a.at(i).([]any)
	return func(yield func(string, int64) bool) {
		for pair := range slices.Chunk(list, 2) {
			id, _ := pair[0].(string)
			text, _ := pair[len(pair)-1].(string)
			number, err := strconv.ParseFloat(text, 64)
			if err == nil && max(number, -number) <= exact && !yield(id, int64(number)) {
				return
			}
		}
	}
}

// Names implements backend.Inspector. It looks through all keys of the server, page by
// page.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := b.isUsable()
		var masters []redis.Cmdable
		if err == nil {
			masters, err = b.masters(ctx)
			backend.Progress(ctx)
		}
		for i := 0; i < len(masters) && err == nil; i++ {
			more := true
			for cursor := uint64(0); more && err == nil; {
				var p scanned
				sent, from := time.Now(), cursor // which a page that nobody waits for any more still reads
				p, err = retry(ctx, b, func(ctx context.Context) (scanned, error) { return scanPage(ctx, masters[i], prefix, from) })
				took := time.Since(sent)
				backend.Progress(ctx)
				for _, name := range p.names {
					if !yield(name, nil) {
						return
					}
				}
				cursor = p.next
				if more = cursor != 0; more {
					backend.Rest(ctx, took, backend.MaxRest)
				}
			}
		}
		if err != nil {
			yield("", fail(err))
		}
	}
}

// masters are the servers that have the locks.
func (b *Backend) masters(ctx context.Context) ([]redis.Cmdable, error) {
	return retry(ctx, b, func(ctx context.Context) (all []redis.Cmdable, err error) {
		var mu sync.Mutex
		err = b.eachMaster(ctx, func(_ context.Context, c redis.UniversalClient) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, c)
			return nil
		})
		return all, err
	})
}

// eachMaster calls do for the server, or at once for each master of a cluster.
func (b *Backend) eachMaster(ctx context.Context, do func(context.Context, redis.UniversalClient) error) error {
	if b.cluster == nil {
		return do(ctx, b.client)
	}
	return b.cluster.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
}

// retry runs f, which reads, until it succeeds or that is hopeless.
func retry[T any](ctx context.Context, b *Backend, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := backend.Bound(ctx, backend.FirstAnswer)
	defer cancel()
	var again repeat
	for {
		v, err := inTime(ctx, f)
		if err == nil || isHopeless(err) || !isPassing(err) || !backend.Sleep(ctx, again.pause(b, err)) {
			return v, err
		}
	}
}

// inTime is what f returns before ctx ends, whatever f waits for: a client of somebody's own may go by
// its timeouts, and not by ctx.
func inTime[T any](ctx context.Context, f func(context.Context) (T, error)) (v T, err error) {
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		o.err = guard(func() (err error) {
			o.v, err = f(ctx)
			return err
		})
		done <- o
	}()
	select {
	case o := <-done:
		return o.v, o.err
	case <-ctx.Done():
		return v, backend.Cause(ctx)
	}
}

// A scanned page has names of locks that are held or waited for.
type scanned struct {
	names []string
	next  uint64 // where the next page begins; 0: this is the last
}

// scanPage looks at a page of the keys of a server.
func scanPage(ctx context.Context, c redis.Cmdable, namePrefix string, cursor uint64) (p scanned, err error) {
	// No byte of an encoded name means anything in a pattern.
	begin := strings.TrimSuffix(string(lockKey(namePrefix)), "}")
	keys, next, err := c.ScanType(ctx, cursor, begin+"*}", page, "hash").Result()
	if err != nil {
		return p, err
	}
	p.next = next
	found := keys
	keys, err = keysInUse(ctx, c, found, false)
	if isMoved(err) { // some are on their way here
		keys, err = keysInUse(ctx, c, found, true)
	}
	for _, k := range keys {
		text := strings.TrimSuffix(strings.TrimPrefix(k, prefix+"{"), "}")
		if name, ok := backend.DecodeName(text); ok {
			p.names = append(p.names, name)
		}
	}
	return p, err
}

// keysInUse returns those of locks that are held or waited for. Asking has a node of a cluster
// tell of keys whose slot it does not have yet. What it refuses even so was left behind when a
// slot moved, and is nobody's lock.
func keysInUse(ctx context.Context, c redis.Cmdable, keys []string, asking bool) (out []string, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	pipe := c.Pipeline()
	ask := func() {
		if asking {
			pipe.Do(ctx, "asking")
		}
	}
	now, states := pipe.Time(ctx), make([]*redis.SliceCmd, len(keys))
	for i, k := range keys {
		ask()
		states[i] = pipe.HMGet(ctx, k, "o", "e", "b")
	}
	if err := execute(ctx, pipe); err != nil && !(asking && isMoved(err)) {
		return nil, err
	}
	ms := float64(now.Val().UnixMilli())
	var others []string
	var ends []*redis.ZSliceCmd
	var owners []*redis.SliceCmd
	pipe = c.Pipeline()
	for i, k := range keys {
		var s struct {
			Owner  string  `redis:"o"`
			Expiry float64 `redis:"e"`
			Busy   int     `redis:"b"`
		}
		switch err := states[i].Scan(&s); {
		case err != nil: // the key of somebody else
		case s.Owner != "" && s.Expiry > ms:
			out = append(out, k)
		case s.Busy == 1 || s.Busy == 3: // readers, or a queue
			others = append(others, k)
			for _, suffix := range []string{suffixes[1], suffixes[3]} {
				ask()
				ends = append(ends, pipe.ZRevRangeWithScores(ctx, k+suffix, 0, 0))
			}
			ask()
			owners = append(owners, pipe.HMGet(ctx, k, "o")) // who has waited may have it by now
		}
	}
	if err = execute(ctx, pipe); asking && isMoved(err) {
		err = nil
	}
	for i, k := range others {
		latest := append(ends[2*i].Val(), ends[2*i+1].Val()...)
		isOwned := len(owners[i].Val()) > 0 && owners[i].Val()[0] != nil
		if isOwned || slices.ContainsFunc(latest, func(z redis.Z) bool { return z.Score > ms }) {
			out = append(out, k)
		}
	}
	return out, err
}

// isMoved reports that a node of a cluster does not have a slot.
func isMoved(err error) bool { return redis.HasErrorPrefix(err, "MOVED") }

// execute sends a pipeline. What the server says of single commands is no error.
func execute(ctx context.Context, pipe redis.Pipeliner) error {
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	if _, isReply := replyOf(err); isReply && kindOf(err) != backend.ErrAuth && !isPassing(err) {
		return nil
	}
	return err
}

// Break implements backend.Breaker. A hold that Expire has left is one, too. Readers are
// ended 1,000 at a time.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	if err := b.isUsable(); err != nil {
		return err
	}
	k, ended, repeated := lockKey(name), int64(0), false
	for {
		call := breakScript.callWith(k, 5, strconv.FormatUint(token, 10))
		a, err := b.runUntilAnswered(ctx, backend.FirstAnswer, breakScript, call, func(err error) {
			repeated = repeated || !isUntouched(err)
		})
		if err != nil {
			return err
		}
		if len(a.values) < 3 {
			return fail(errGarbled)
		}
		b.checkLater(k, a)
		ended += a.int(0)
		switch {
		case a.int(0) > 0 && a.int(2) > 0:
		case ended > 0 || repeated: // by a request whose answer was lost
			return nil
		default:
			return backend.ErrNotHeld
		}
	}
}
