package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// A lossObserver counts the news that a hold was taken away.
type lossObserver struct {
	silentObserver
	broken atomic.Int64
}

func (o *lossObserver) Lost(cause error) {
	if errors.Is(cause, backend.ErrBroken) {
		o.broken.Add(1)
	}
}

// requestOf is a request of a client of its own.
func requestOf(t *testing.T, client string, mode backend.Mode) backend.Request {
	return backend.Request{
		Name: t.Name(), ID: backend.ID{Client: slug(t) + client, Seq: 1}, Label: "label of " + client,
		Mode: mode, TTL: limit, Wait: true, Observer: silentObserver{},
	}
}

func newBackend(t *testing.T, c redis.UniversalClient, o *Options) *Backend {
	t.Helper()
	b := New(c, o)
	t.Cleanup(func() { must[any](t)(nil, b.Close(within(t))) })
	return b
}

// keysOf is all that there is of a lock, with the time that it stays.
func keysOf(t *testing.T, c *redis.Client, name string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, suffix := range suffixes {
		k := mainKey(name) + suffix
		if dump := c.Dump(within(t), k).Val(); dump != "" {
			all[k] = fmt.Sprint(dump, c.Do(within(t), "pexpiretime", k).Val())
		}
	}
	return all
}

// TestInspect looks at a lock that is free, held, entered again, waited for, downgraded,
// given to readers and free again. It changes nothing.
func TestInspect(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	b := newBackend(t, c, nil)
	look := func(what string, holders, waiters int) backend.Snapshot {
		t.Helper()
		before := keysOf(t, c, t.Name())
		s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name()))
		if !maps.Equal(before, keysOf(t, c, t.Name())) {
			t.Errorf("%s: something has changed", what)
		}
		if len(s.Holders) != holders || len(s.Waiters) != waiters {
			t.Fatalf("%s: %+v", what, s)
		}
		for _, p := range s.Holders {
			if p.Token == 0 || p.Left <= 0 || p.Left > limit || p.Mode == backend.Exclusive && time.Since(p.Since).Abs() > limit {
				t.Errorf("%s: a holder %+v", what, p)
			}
		}
		for _, id := range append(c.ZRange(ctx, mainKey(t.Name())+":q", 0, -1).Val(), c.HGet(ctx, mainKey(t.Name()), "o").Val()) {
			if _, mac, _ := cutLast(id, '.'); mac != "" && strings.Contains(fmt.Sprintf("%+v", s), mac) {
				t.Errorf("%s: it shows the proof of an id", what)
			}
		}
		return s
	}
	look("free", 0, 0)
	r := requestOf(t, "a", backend.Exclusive)
	h := must[*backend.Hold](t)(b.Acquire(ctx, r))
	must[any](t)(nil, b.Reenter(ctx, h, 3, 1))
	got := make(chan *backend.Hold, 2)
	for i, client := range []string{"b", "c"} {
		go func() { got <- must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, client, backend.Shared))) }()
		eventually(t, "it waits", func() bool { return int(waiting(t, c)) == i+1 })
	}
	s := look("held", 1, 2)
	if p := s.Holders[0]; p.Client != r.ID.Client || p.Label != r.Label || p.Entries != 3 || p.Mode != backend.Exclusive || p.Token != h.Token {
		t.Errorf("the holder is %+v", p)
	}
	for i, client := range []string{"b", "c"} {
		p := s.Waiters[i]
		if p.Label != "label of "+client || p.Mode != backend.Shared || time.Since(p.Since).Abs() > limit || p.Token != 0 {
			t.Errorf("waiter %d is %+v", i, p)
		}
	}
	must[any](t)(nil, b.Downgrade(ctx, h))
	readers := []*backend.Hold{<-got, <-got, h}
	for _, p := range look("shared", 3, 0).Holders {
		if p.Mode != backend.Shared || p.Token != h.Token {
			t.Errorf("a reader is %+v", p)
		}
	}
	for _, h := range readers {
		must[any](t)(nil, b.Release(ctx, h))
	}
	look("free again", 0, 0)

	h = must[*backend.Hold](t)(b.Acquire(ctx, r))
	must[any](t)(nil, b.Expire(ctx, h, time.Hour))
	if s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name())); len(s.Holders) != 1 || s.Holders[0].Label != r.Label {
		t.Errorf("a hold that ends by itself: %+v", s)
	}
	must[any](t)(c.HSet(ctx, mainKey(t.Name()), "e", 1).Result())
	look("over", 0, 0)
}

// TestInspectMany looks at more waiters, and readers, than a page has.
func TestInspectMany(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	b := newBackend(t, c, nil)
	const many = 2*page + 500
	expiry := time.Now().Add(time.Hour).UnixMilli()
	for i, key := range []string{":r", ":q", ":a"} {
		name := fmt.Sprint(t.Name(), min(i, 1))
		var all []redis.Z
		for n := range many {
			score := float64(expiry + int64(n))
			if i == 0 {
				score = float64(expiry + int64(n/700)) // of a page and more the lease ends at once
			}
			all = append(all, redis.Z{Score: score, Member: fmt.Sprintf("r60000:client:%d.AAAAAAAAAAA", n+1)})
		}
		must[int64](t)(c.ZAdd(ctx, mainKey(name)+key, all...).Result())
		must[bool](t)(c.Expire(ctx, mainKey(name)+key, time.Minute).Result())
	}
	if n := len(must[backend.Snapshot](t)(b.Inspect(ctx, t.Name()+"0")).Holders); n != many {
		t.Errorf("%d readers of %d", n, many)
	}
	waiters := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name()+"1")).Waiters
	if !slices.IsSortedFunc(waiters, func(a, b backend.Party) int { return a.Since.Compare(b.Since) }) || len(waiters) != many {
		t.Errorf("%d waiters of %d, or out of order", len(waiters), many)
	}
}

// TestInspectMeanwhile has the lock change hands between two pages: from a writer to the
// readers who wait, from readers to the writer who waits, and to who is first of a lock that
// nobody had. Nobody is told of as one who holds and one who waits, or beside a writer.
func TestInspectMeanwhile(t *testing.T) {
	t.Parallel()
	const writer, many = "w60000:client:1=writer.AAAAAAAAAAA", 2 * page
	expiry := time.Now().Add(time.Hour).UnixMilli()
	var readers []redis.Z
	for n := range many {
		readers = append(readers, redis.Z{Score: float64(expiry + int64(n)), Member: fmt.Sprintf("r60000:client:%d=reader%d.AAAAAAAAAAA", n+2, n)})
	}
	first := redis.Z{Score: float64(expiry - 1), Member: writer}
	type change func(p redis.Pipeliner, key string)
	writerHolds := func(p redis.Pipeliner, key string) {
		p.HSet(t.Context(), key, "o", writer, "n", 1, "e", expiry, "t", 7)
	}
	readersHold := func(p redis.Pipeliner, key string) { p.ZAdd(t.Context(), key+":r", readers...) }
	wait := func(who ...redis.Z) change {
		return func(p redis.Pipeliner, key string) {
			p.ZAdd(t.Context(), key+":q", who...)
			p.ZAdd(t.Context(), key+":a", who...)
		}
	}
	nobody := func(p redis.Pipeliner, key string) { p.Del(t.Context(), key, key+":r", key+":q", key+":a") }
	for name, of := range map[string]struct{ before, after []change }{
		"to readers":       {[]change{writerHolds, wait(readers...)}, []change{nobody, readersHold}},
		"to a writer":      {[]change{readersHold, wait(first)}, []change{nobody, writerHolds}},
		"to who was first": {[]change{wait(append(readers, first)...)}, []change{nobody, writerHolds, wait(readers...)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c := within(t), plainClient(t, shared)
			b, proxy := behindProxy(t)
			apply := func(changes []change) {
				must[[]redis.Cmder](t)(c.TxPipelined(ctx, func(p redis.Pipeliner) error {
					for _, change := range changes {
						change(p, mainKey(t.Name()))
					}
					return nil
				}))
			}
			apply(of.before)
			pages := 0
			proxy.OnRequest(func(_ int, req []byte) {
				if bytes.Contains(req, []byte(mainKey(t.Name()))) {
					if pages++; pages == 2 {
						apply(of.after)
					}
				}
			})
			s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name()))
			if pages < 2 {
				t.Fatalf("%d pages", pages)
			}
			told := make(map[string]bool)
			for _, p := range slices.Concat(s.Holders, s.Waiters) {
				if told[p.Label] {
					t.Fatalf("%s is told of twice, among %d holders and %d waiters", p.Label, len(s.Holders), len(s.Waiters))
				}
				told[p.Label] = true
			}
			exclusive := func(p backend.Party) bool { return p.Mode == backend.Exclusive }
			if len(s.Holders) > 1 && slices.ContainsFunc(s.Holders, exclusive) {
				t.Errorf("a writer is one of %d holders", len(s.Holders))
			}
		})
	}
}

// TestNames has locks of all kinds among keys of others.
func TestNames(t *testing.T) {
	t.Parallel()
	s := server.Start(t, server.Redis{})
	c := plainClient(t, s)
	testNames(t, newBackend(t, c, nil), c)
}

func TestNamesInACluster(t *testing.T) {
	t.Parallel()
	c, admin := sharedCluster.use(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	testNames(t, newBackend(t, rdb, nil), admin)
}

func testNames(t *testing.T, b *Backend, admin redis.Cmdable) {
	ctx := within(t)
	want := map[string]bool{}
	held := func(name string, mode backend.Mode) *backend.Hold {
		r := requestOf(t, fmt.Sprint(len(want)), mode)
		r.Name, want[name] = name, true
		return must[*backend.Hold](t)(b.Acquire(ctx, r))
	}
	for i := range 900 { // several pages on each node of a cluster
		held(fmt.Sprintf("jobs/%d", i), backend.Mode(1+i%2))
	}
	for _, name := range []string{"jobs/*", "jobs/{a}", "jobs/\x00\xff:r", "jobs/[1]", "jobs/é"} {
		held(name, backend.Exclusive)
	}
	for _, name := range []string{".", "job", "other"} {
		held(name, backend.Exclusive)
		delete(want, name)
	}
	must[any](t)(nil, b.Release(ctx, held("jobs/free", backend.Exclusive)))
	delete(want, "jobs/free")
	must[any](t)(admin.HSet(ctx, "dlock:{jobs%2Fforeign}", "x", 1).Result())
	must[any](t)(admin.Set(ctx, "dlock:{jobs%2Ftext}", 1, 0).Result())
	must[any](t)(admin.HSet(ctx, "dlock:{jobs%zz}", "o", 1, "e", int64(1)<<43).Result())
	got := map[string]bool{}
	for name, err := range b.Names(ctx, "jobs/") {
		must[any](t)(nil, err)
		got[name] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d names, want %d: %q", len(got), len(want), slices.Sorted(maps.Keys(got))[:min(len(got), 10)])
	}
	for range b.Names(ctx, "") {
		break
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, err := range b.Names(ended, "") {
		if err == nil {
			t.Errorf("%q, after the context has ended", name)
		}
	}
}

// TestReader has a user look who may only read.
func TestReader(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	user := "looks on >secret resetkeys %R~dlock:* resetchannels -@all +hello +auth +ping +eval_ro +time +hmget +zscore +zrevrange +zrangebyscore +scan"
	if tooOld() {
		user = "looks on >secret resetkeys ~dlock:* resetchannels -@all +hello +auth +ping +eval +evalsha +time +hmget +zscore +zrevrange +zrangebyscore +scan"
	}
	acl := []any{"acl", "setuser"}
	for word := range strings.FieldsSeq(user) {
		acl = append(acl, word)
	}
	must[any](t)(c.Do(ctx, acl...).Result())
	h := must[*backend.Hold](t)(newBackend(t, c, nil).Acquire(ctx, requestOf(t, "a", backend.Exclusive)))
	rdb := redis.NewClient(&redis.Options{Addr: shared.Addr(), Username: "looks", Password: "secret", DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	b := newBackend(t, rdb, &Options{PollOnly: true})
	if s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name())); len(s.Holders) != 1 || s.Holders[0].Token != h.Token {
		t.Errorf("%+v", s)
	}
	names := 0
	for name, err := range b.Names(ctx, t.Name()) {
		must[any](t)(nil, err)
		if name == t.Name() {
			names++
		}
	}
	if names == 0 {
		t.Error("the name is missing")
	}
	if version := must[string](t)(b.Ping(ctx)); version != shared.Version() {
		t.Errorf("version %q, want %q", version, shared.Version())
	}
	is(t, b.Break(ctx, t.Name(), h.Token), backend.ErrAuth)
}

// A betweenLooks is a hook that calls a function once, after a pipeline was answered.
type betweenLooks struct {
	once sync.Once
	call func()
}

func (*betweenLooks) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*betweenLooks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *betweenLooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.once.Do(h.call)
		return err
	}
}

// TestNamesOfALockThatPassesOn has a lock pass from a reader to a writer between two looks
// at it: it is held all the time, and named.
func TestNamesOfALockThatPassesOn(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	b := newBackend(t, c, nil)
	reader := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "reader", backend.Shared)))
	got := make(chan *backend.Hold, 1)
	go func() { got <- must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "writer", backend.Exclusive))) }()
	eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
	looking := plainClient(t, shared)
	looking.AddHook(&betweenLooks{call: func() { must[any](t)(nil, b.Release(ctx, reader)) }})
	names := slices.Collect(func(yield func(string) bool) {
		for name, err := range newBackend(t, looking, nil).Names(ctx, t.Name()) {
			must[any](t)(nil, err)
			yield(name)
		}
	})
	if !slices.Equal(names, []string{t.Name()}) {
		t.Errorf("%q", names)
	}
	must[any](t)(nil, b.Release(ctx, <-got))
}

// TestInspectOnly opens a server to ask alone, which writes nothing.
func TestInspectOnly(t *testing.T) {
	t.Parallel()
	ctx, s := within(t), server.StartAll(t, server.Redis{})[0]
	c := openURL(t, "redis://"+s.Addr(), &dlock.Options{InspectOnly: true})
	must[any](t)(nil, c.Ping(ctx))
	must[dlock.Snapshot](t)(c.Inspect(ctx, "x"))
	for _, err := range c.Names(ctx, "") {
		must[any](t)(nil, err)
	}
	info := plainClient(t, s).InfoMap(ctx, "persistence")
	if n := info.Item("Persistence", "rdb_changes_since_last_save"); n != "0" {
		t.Errorf("questions have written %s times", n)
	}
}

// TestBreak takes a hold away, of a writer and of readers: the next in line has the lock
// at once, and who held it hears of that, by a message or by its renewal.
func TestBreak(t *testing.T) {
	t.Parallel()
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		for _, polls := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/polls=%v", mode, polls), func(t *testing.T) {
				t.Parallel()
				ctx, c := within(t), plainClient(t, shared)
				b := newBackend(t, c, &Options{PollOnly: polls})
				var o lossObserver
				var held []*backend.Hold
				for i := range 3 {
					if mode == backend.Shared || i == 0 {
						r := requestOf(t, fmt.Sprint(i), mode)
						r.Observer = &o
						if !polls {
							b.listener.existing(b.channelOf(lockKey(r.Name), r.ID.Client)).works(ctx, limit)
						}
						held = append(held, must[*backend.Hold](t)(b.Acquire(ctx, r)))
					}
				}
				got := make(chan *backend.Hold, 1)
				go func() { got <- must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "next", backend.Exclusive))) }()
				eventually(t, "it waits", func() bool { return waiting(t, c) == 1 })
				after := held[0].Token + 1 // under which a writer, but no reader, may have handed the lock on
				if mode == backend.Exclusive {
					after += uint64(held[0].TTL.Microseconds())
				}
				for _, wrong := range []uint64{0, 1, held[0].Token - 1, after, 1<<64 - 1} {
					is(t, b.Break(ctx, t.Name(), wrong), backend.ErrNotHeld)
				}
				must[any](t)(nil, b.Break(ctx, t.Name(), held[0].Token))
				next := <-got
				if next.Token <= held[0].Token {
					t.Errorf("token %d after %d", next.Token, held[0].Token)
				}
				is(t, b.Break(ctx, t.Name(), held[0].Token), backend.ErrNotHeld)
				if !polls {
					eventually(t, "they hear of it", func() bool { return int(o.broken.Load()) == len(held) })
				}
				b.Renew(ctx, held, func(_ *backend.Hold, err error) {
					is(t, err, backend.ErrLost)
					is(t, err, backend.ErrBroken)
				})
				for _, h := range held {
					is(t, b.Release(ctx, h), backend.ErrLost)
				}
				b.Renew(ctx, []*backend.Hold{next}, func(_ *backend.Hold, err error) { must[any](t)(nil, err) })
				must[any](t)(nil, b.Release(ctx, next))
			})
		}
	}
}

// TestBreakLetsTheNextIn has the request that takes a lock away let in who waits for it.
func TestBreakLetsTheNextIn(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	holder, next := openClient(t, shared, nil), openClient(t, shared, &dlock.Options{Label: "next"})
	first := must[*dlock.Lease](t)(holder.Mutex(t.Name()).Lock(ctx))
	got := make(chan *dlock.Lease, 1)
	go func() { got <- must[*dlock.Lease](t)(next.Mutex(t.Name()).Lock(ctx)) }()
	eventually(t, "it waits", func() bool {
		return len(must[dlock.Snapshot](t)(holder.Inspect(ctx, t.Name())).Waiters) == 1
	})
	must[any](t)(nil, holder.Break(ctx, t.Name(), first.Token()))
	s := must[dlock.Snapshot](t)(holder.Inspect(ctx, t.Name()))
	if len(s.Holders) != 1 || s.Holders[0].Label != "next" {
		t.Errorf("after the break %+v have it", s.Holders)
	}
	must[any](t)(nil, (<-got).Unlock(ctx))
}

// TestBreakOfAHoldThatWasPassedOn takes a lock away under the token of a goroutine to which
// another has passed it on. The server has not heard of that token.
func TestBreakOfAHoldThatWasPassedOn(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	holder, other := openClient(t, shared, nil), openClient(t, shared, nil)
	m := holder.Mutex(t.Name())
	first := must[*dlock.Lease](t)(m.Lock(ctx))
	got := make(chan *dlock.Lease, 1)
	go func() {
		l, _ := m.Lock(ctx)
		got <- l
	}()
	<-first.Wanted()
	must[any](t)(nil, first.Unlock(ctx))
	second := <-got
	if second.Token() <= first.Token() {
		t.Fatalf("token %d after %d", second.Token(), first.Token())
	}
	is(t, other.Break(ctx, t.Name(), first.Token()-1), dlock.ErrNotHeld)
	must[any](t)(nil, other.Break(ctx, t.Name(), second.Token()))
	<-second.Done()
	is(t, second.Err(), dlock.ErrBroken)
}

// TestBreakOneAfterTheOther takes a lock away from several before any of them renews: each
// hears what has become of its hold.
func TestBreakOneAfterTheOther(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	b := newBackend(t, plainClient(t, shared), &Options{PollOnly: true})
	var all []*backend.Hold
	for i := range 4 {
		h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, fmt.Sprint(i), backend.Exclusive)))
		must[any](t)(nil, b.Break(ctx, t.Name(), h.Token))
		all = append(all, h)
	}
	b.Renew(ctx, all, func(_ *backend.Hold, err error) { is(t, err, backend.ErrBroken) })
}

// TestBreakAgain has nobody hear that a hold was taken away: the next request finds
// nothing to take, and that is no error.
func TestBreakAgain(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	b, p := behindProxy(t)
	r := requestOf(t, "a", backend.Exclusive)
	h := must[*backend.Hold](t)(b.Acquire(ctx, r))
	must[string](t)(plainClient(t, shared).ScriptLoad(ctx, breakScript.source).Result())
	p.DropReplyAfter(runs(breakScript))
	must[any](t)(nil, b.Break(ctx, t.Name(), h.Token))
	is(t, b.Release(ctx, h), backend.ErrLost)
}

// TestBreakOfManyReaders takes a lock away from more readers than one script does.
func TestBreakOfManyReaders(t *testing.T) {
	t.Parallel()
	ctx, c := within(t), plainClient(t, shared)
	b := newBackend(t, c, nil)
	const many = 2*page + 500
	h := must[*backend.Hold](t)(b.Acquire(ctx, requestOf(t, "a", backend.Shared)))
	var all []redis.Z
	for n := range many {
		all = append(all, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: fmt.Sprintf("r60000:client:%d.AAAAAAAAAAA", n+1)})
	}
	must[int64](t)(c.ZAdd(ctx, mainKey(t.Name())+":r", all...).Result())
	must[any](t)(nil, b.Break(ctx, t.Name(), h.Token))
	if s := must[backend.Snapshot](t)(b.Inspect(ctx, t.Name())); len(s.Holders) > 0 {
		t.Errorf("%d holders are left", len(s.Holders))
	}
	is(t, b.Release(ctx, h), backend.ErrLost)
}
