package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

func labelled(t testing.TB, label string) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(timed(t), "etcd://"+shared.Addr()+"/"+prefix(t), &dlock.Options{TTL: time.Minute, Label: label})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close(timed(t))) })
	return c
}

// labels returns the labels of those who hold a lock and of those who wait.
func labels(t testing.TB, c *dlock.Client, name string) (holders, waiters []string) {
	t.Helper()
	s, err := c.Inspect(timed(t), name)
	must(t, err)
	for _, p := range s.Holders {
		holders = append(holders, p.Label)
		if p.Left <= 0 || p.Left > time.Minute || p.Token == 0 || len(p.Client) != 8 {
			t.Errorf("a holder is %+v", p)
		}
	}
	for _, p := range s.Waiters {
		waiters = append(waiters, p.Label)
	}
	return holders, waiters
}

// TestInspect looks at a lock while a writer holds it, after its downgrade, and while a
// reader waits behind a writer.
func TestInspect(t *testing.T) {
	admin := raw(t, shared.Addr())
	a, b, c := labelled(t, "a+b"), labelled(t, "b"), labelled(t, "")
	shows := func(when string, holders, waiters []string) {
		t.Helper()
		gotHolders, gotWaiters := labels(t, c, "x")
		if !slices.Equal(gotHolders, holders) || !slices.Equal(gotWaiters, waiters) {
			t.Fatalf("%s: %q hold and %q wait, want %q and %q", when, gotHolders, gotWaiters, holders, waiters)
		}
	}
	shows("free", nil, nil)
	lease := locked(t, a.RWMutex("x"))
	writer := start(t, timed(t), b.RWMutex("x").Lock)
	queued(t, admin, 2)
	reader := start(t, timed(t), c.RWMutex("x").RLock)
	queued(t, admin, 3)
	shows("held", []string{"a+b"}, []string{"b", ""})
	must(t, lease.Downgrade(timed(t)))
	shows("downgraded", []string{"a+b"}, []string{"b", ""})
	must(t, lease.Unlock(timed(t)))
	lease = writer.granted()
	shows("granted", []string{"b"}, []string{""})
	must(t, lease.Unlock(timed(t))) // which leaves a marked key
	shows("released", []string{""}, nil)
	must(t, reader.granted().Unlock(timed(t)))
	shows("free again", nil, nil)
}

// TestBreakDowngraded takes a lock away from a writer that has become a reader, and from
// nobody else.
func TestBreakDowngraded(t *testing.T) {
	t.Parallel()
	admin := raw(t, shared.Addr())
	a, b := open(t, keptTTL, shared.Addr()), open(t, keptTTL, shared.Addr())
	lease, reader := locked(t, a.RWMutex("x")), start(t, timed(t), b.RWMutex("x").RLock)
	queued(t, admin, 2)
	waiting := keys(t, admin)[0]
	found, err := admin.Get(timed(t), waiting)
	must(t, err)
	for _, token := range []uint64{0, 1, lease.Token() - 1, lease.Token() + 1<<16, uint64(found.Kvs[0].CreateRevision) << 16} {
		is(t, b.Break(timed(t), "x", token), dlock.ErrNotHeld)
	}
	must(t, lease.Downgrade(timed(t)))
	other := reader.granted()
	must(t, b.Break(timed(t), "x", lease.Token()))
	is(t, b.Break(timed(t), "x", lease.Token()), dlock.ErrNotHeld)
	within(t, "lost", lease.Done())
	is(t, lease.Err(), dlock.ErrLost)
	must(t, other.Unlock(timed(t)))
	queued(t, admin, 0)
}

// TestBreakIsTold breaks holds: a renewal, an Unlock or a Downgrade tells the holder that
// it was Break, and leaves no mark of that. A key that was deleted by hand is no Break.
func TestBreakIsTold(t *testing.T) {
	t.Parallel()
	admin, other := raw(t, shared.Addr()), open(t, time.Minute, shared.Addr())
	marks := func() int {
		n := 0
		reply, err := admin.Get(timed(t), prefix(t)+"/s/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		must(t, err)
		for _, kv := range reply.Kvs {
			if strings.Contains(string(kv.Key), "/broken/") {
				n++
			}
		}
		return n
	}
	told := func(err error) {
		t.Helper()
		is(t, err, dlock.ErrLost)
		is(t, err, dlock.ErrBroken)
		if n := marks(); n != 0 {
			t.Errorf("%d marks are left", n)
		}
	}
	slow := open(t, time.Minute, shared.Addr())
	for _, end := range []func(*dlock.Lease) error{
		func(l *dlock.Lease) error { return l.Unlock(timed(t)) },
		func(l *dlock.Lease) error { return l.Downgrade(timed(t)) },
	} {
		lease := locked(t, slow.RWMutex("x"))
		must(t, other.Break(timed(t), "x", lease.Token()))
		told(end(lease))
	}

	quick := open(t, keptTTL, shared.Addr())
	lease, down, deleted := locked(t, quick.RWMutex("x")), locked(t, quick.RWMutex("downgraded")), locked(t, quick.RWMutex("deleted"))
	must(t, down.Downgrade(timed(t)))
	must(t, other.Break(timed(t), "x", lease.Token()))
	must(t, other.Break(timed(t), "downgraded", down.Token()))
	_, err := admin.Delete(timed(t), prefix(t)+"/l/deleted/", clientv3.WithPrefix())
	must(t, err)
	for _, l := range []*dlock.Lease{lease, down, deleted} {
		within(t, "lost", l.Done())
	}
	told(lease.Err())
	told(down.Err())
	if is(t, deleted.Err(), dlock.ErrLost); errors.Is(deleted.Err(), dlock.ErrBroken) {
		t.Errorf("nobody has broken the hold: %v", deleted.Err())
	}
}

// TestBreakAnswerLost has Break find out that it has taken the lock away.
func TestBreakAnswerLost(t *testing.T) {
	p := proxied(t, shared.Addr())
	c := open(t, time.Minute, p.Addr())
	lease := locked(t, open(t, time.Minute, shared.Addr()).Mutex("x"))
	must(t, locked(t, c.Mutex("other")).Unlock(timed(t)))
	drop := p.DropReplyAfter(contains("/l/x/w/"))
	must(t, c.Break(timed(t), "x", lease.Token()))
	if !drop.Answered() {
		t.Fatal("the request was not carried out")
	}
	queued(t, raw(t, shared.Addr()), 0)
}

// TestInspectPages reads a queue and names in pages, in the order of the queue and each
// name once, and counts the requests.
func TestInspectPages(t *testing.T) {
	t.Parallel()
	const waiters, names = 1800, 1200
	admin, p := raw(t, shared.Addr()), proxied(t, shared.Addr())
	put := func(n int, key func(int) string) {
		for i := range n { // each at a revision of its own
			_, err := admin.Put(timed(t), prefix(t)+"/l/"+key(i), "+"+fmt.Sprint(i))
			must(t, err)
		}
	}
	put(waiters, func(i int) string { return fmt.Sprintf("crowd/w/%d", (i*7)%waiters) })
	put(names, func(i int) string { return fmt.Sprintf("n:%d/r/1", i) })
	c := openQuiet(t, p)
	before := p.Stats().Requests
	s, err := c.Inspect(timed(t), "crowd")
	must(t, err)
	if len(s.Holders) != 1 || len(s.Waiters) != waiters-1 {
		t.Fatalf("%d hold, %d wait", len(s.Holders), len(s.Waiters))
	}
	for i, w := range s.Waiters {
		if w.Label != fmt.Sprint(i+1) {
			t.Fatalf("waiter %d is %q", i+1, w.Label)
		}
	}
	if got := p.Stats().Requests - before; got != 4 {
		t.Errorf("%d requests for %d waiters", got, waiters)
	}
	for query, want := range map[string]struct{ names, requests int }{
		"":    {names + 1, 1 + 3}, // the rest of a queue is passed over
		"cr":  {1, 1 + 1},
		"n:1": {311, 1},
		"no":  {0, 1},
	} {
		before, found := p.Stats().Requests, make(map[string]bool)
		for name, err := range c.Names(timed(t), query) {
			must(t, err)
			if found[name] {
				t.Errorf("%q twice", name)
			}
			found[name] = true
		}
		if got := int(p.Stats().Requests - before); len(found) != want.names || got > want.requests {
			t.Errorf("%q: %d names with %d requests, want %+v", query, len(found), got, want)
		}
	}
}

// TestInspectReadOnly asks with a role that may only read.
func TestInspectReadOnly(t *testing.T) {
	s, root := guarded(t)
	app, err := dlock.Open(timed(t), as(t, "app", "pass/of/app", s.Addr()), &dlock.Options{TTL: time.Minute, Label: "label"})
	must(t, err)
	defer app.Close(timed(t))
	lease := locked(t, app.Mutex("x"))
	from := prefix(t) + "/"
	_, err = root.RoleAdd(timed(t), "reader")
	must(t, err)
	_, err = root.RoleGrantPermission(timed(t), "reader", from, clientv3.GetPrefixRangeEnd(from), clientv3.PermissionType(clientv3.PermRead))
	must(t, err)
	_, err = root.UserAdd(timed(t), "viewer", "look")
	must(t, err)
	_, err = root.UserGrantRole(timed(t), "viewer", "reader")
	must(t, err)
	before, err := root.Get(timed(t), "revision")
	must(t, err)
	viewer, err := dlock.Open(timed(t), as(t, "viewer", "look", s.Addr()), &dlock.Options{InspectOnly: true})
	must(t, err)
	defer viewer.Close(timed(t))
	got, err := viewer.Inspect(timed(t), "x")
	must(t, err)
	if len(got.Holders) != 1 || got.Holders[0].Label != "label" || got.Holders[0].Token != lease.Token() {
		t.Errorf("got %+v", got)
	}
	for name, err := range viewer.Names(timed(t), "") {
		must(t, err)
		if name != "x" {
			t.Errorf("got %q", name)
		}
	}
	must(t, viewer.Ping(timed(t)))
	is(t, viewer.Break(timed(t), "x", lease.Token()), backend.ErrAuth)
	after, err := root.Get(timed(t), "revision")
	must(t, err)
	if after.Header.Revision != before.Header.Revision {
		t.Errorf("who asked has written: revision %d, then %d", before.Header.Revision, after.Header.Revision)
	}
	must(t, lease.Unlock(timed(t)))
}

// TestPing asks a server that has raised an alarm, and one that does not answer.
func TestPing(t *testing.T) {
	s := server.Start(t, kind())
	p := proxied(t, s.Addr())
	c, admin := open(t, time.Minute, p.Addr()), raw(t, s.Addr())
	must(t, c.Ping(timed(t)))
	if got := c.Info().Version; got == "" || !strings.Contains(s.Version(), got) {
		t.Errorf("version %q of %q", got, s.Version())
	}
	status, err := admin.Status(timed(t), s.Addr())
	must(t, err)
	full := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	_, err = pb.NewMaintenanceClient(admin.ActiveConnection()).Alarm(timed(t), full)
	must(t, err)
	is(t, c.Ping(timed(t)), dlock.ErrUnavailable)
	p.Refuse()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if c.Ping(ctx) == nil {
		t.Error("a server that cannot be reached has answered")
	}
}
