package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// slotsOf is a client of a cluster that is told who has the slots: nobody where there is no address.
func slotsOf(t *testing.T, calls *atomic.Int32, addrs ...string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			n := min(int(calls.Add(1)), len(addrs)) - 1
			if addrs[n] == "" {
				return nil, nil
			}
			return []redis.ClusterSlot{{Start: 0, End: clusterSlots - 1, Nodes: []redis.ClusterNode{{Addr: addrs[n]}}}}, nil
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A node that was taken out of a cluster knows nobody: a client that has asked it asks another one for the
// masters, and does not take it that there are none.
func TestMastersThatANodeDoesNotName(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := New(slotsOf(t, &calls, "", "127.0.0.1:2"), nil)
	all, err := b.masters(t.Context())
	if err != nil || len(all) != 1 {
		t.Errorf("%d masters, %v", len(all), err)
	}
}

// A node that says that the cluster is down may have been taken out of it: who has the slots is asked again.
func TestANodeThatSaysTheClusterIsDown(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := New(slotsOf(t, &calls, nodeSaying(t, "-CLUSTERDOWN Hash slot not served\r\n")), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the client library asks by itself after 10 s
	defer cancel()
	_, err := b.cluster.do(ctx, time.Second, renewScript.call([]any{"{a}"}, 1, 1000, "w"), ordinary)
	if !says(err, "CLUSTERDOWN") {
		t.Fatal(err)
	}
	for calls.Load() < 2 {
		select {
		case <-ctx.Done():
			t.Fatal("who has the slots was not asked again")
		case <-time.After(time.Millisecond):
		}
	}
}

// Open of a cluster asks another node where the first names no master.
func TestOpenAtANodeThatNamesNoMaster(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := New(slotsOf(t, &calls, "", "", nodeSaying(t, "+PONG\r\n")), nil)
	if err := b.awaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

// Where no node names a master, as in a cluster that nobody has set up, Open says so when it gives up.
func TestOpenWhereNobodyNamesAMaster(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := New(slotsOf(t, &calls, ""), nil).awaitReady(ctx); !errors.Is(err, errNoMasters) {
		t.Error(err)
	}
}

// What Open looks at once the cluster answers waits for a node that names masters, too.
func TestOpenAwaitsMasters(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := New(slotsOf(t, &calls, "", "", nodeSaying(t, "+PONG\r\n")), nil)
	masters := 0
	err := b.awaitMasters(t.Context(), func(context.Context, redis.UniversalClient) error { masters++; return nil })
	if err != nil || masters != 1 {
		t.Error(masters, err)
	}
}

// Who has the slots is asked of another node where one names nobody, as one does that was taken out of the
// cluster and lives on: the client goes by that answer at no time.
func TestANodeThatNamesNobody(t *testing.T) {
	t.Parallel()
	gone, master := nodeNaming(t, "-CLUSTERDOWN Hash slot not served\r\n", false), nodeSaying(t, "+PONG\r\n")
	u := must[*backend.URL](t)(backend.ParseURL("redis+cluster://" + gone + "," + master))
	c, _, err := clientOf(backend.Config{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 30 { // the client library asks any of them
		masters := 0
		err := c.(*redis.ClusterClient).ForEachMaster(within(t), func(context.Context, *redis.Client) error { masters++; return nil })
		if err != nil || masters != 1 {
			t.Fatalf("%d masters, %v", masters, err)
		}
	}
}

// Where no node of a cluster names anybody, its client says so.
func TestNodesThatNameNobody(t *testing.T) {
	t.Parallel()
	u := must[*backend.URL](t)(backend.ParseURL("redis+cluster://" + nodeNaming(t, "+PONG\r\n", false)))
	c, _, err := clientOf(backend.Config{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.(*redis.ClusterClient).MasterForKey(within(t), "a"); !errors.Is(err, errNoMasters) {
		t.Error(err)
	}
}
