package redis

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// complaints returns what Examine says is not as it should be, by subject.
func complaints(t testing.TB, client *dlock.Client) map[string]string {
	t.Helper()
	bad := make(map[string]string)
	must[any](t)(nil, client.Examine(within(t), func(f backend.Finding) {
		if f.Level > backend.OK {
			bad[f.Subject] += fmt.Sprintf("%v: %s\n", f.Level, f.Text)
		}
		if (f.Level > backend.OK) != (f.Advice != "") {
			t.Errorf("advice is for what is not as it should be: %v", f)
		}
	}))
	return bad
}

// complains checks that Examine complains of these subjects in these words, and of no other.
func complains(t testing.TB, client *dlock.Client, want map[string]string) {
	t.Helper()
	bad := complaints(t, client)
	for subject, text := range want {
		if !strings.Contains(bad[subject], text) || bad[subject] == "" {
			t.Errorf("%s: %q, want %q", subject, bad[subject], text)
		}
	}
	for subject, text := range bad {
		if _, ok := want[subject]; !ok {
			t.Errorf("%s: %q, want nothing", subject, text)
		}
	}
}

// TestExamineCluster looks at a cluster that is well, that has lost a replica, and then
// the master of that, too.
func TestExamineCluster(t *testing.T) {
	t.Parallel()
	c, _ := startCluster(t, server.Redis{AppendOnly: true})
	client, plain := openURL(t, clusterURL(c)+"?dlock.replicas=1", nil), openURL(t, clusterURL(c), nil)
	complains(t, client, nil)
	complains(t, plain, map[string]string{"replicas": "none has to acknowledge"})

	must[any](t)(nil, c.Replicas[0].Kill())
	for _, survivor := range append(c.Replicas[1:], c.Masters...) { // any of them may be asked
		node := plainClient(t, survivor)
		eventually(t, "it takes the replica for dead", func() bool {
			return strings.Contains(must[string](t)(node.ClusterNodes(within(t)).Result()), "fail")
		})
	}
	complains(t, client, map[string]string{"nodes": "warning: " + c.Replicas[0].Addr(), "replicas": "fault: " + c.Masters[0].Addr() + ": 1 have to acknowledge each lock, and 0 are connected"})
	complains(t, plain, map[string]string{"nodes": c.Replicas[0].Addr(), "replicas": c.Masters[0].Addr() + ": this master has none"})

	must[any](t)(nil, c.Masters[0].Kill())
	want := map[string]string{
		"slots":   "fault: 5461 of 16384 slots",
		"nodes":   "fault: " + c.Masters[0].Addr() + ": no lock in the slots of this master works",
		"scripts": "fault: the server runs no script, no lock will work",
	}
	eventually(t, "any node sees it like that", func() bool { // some later than others
		bad := complaints(t, plain)
		for subject, text := range want {
			if !strings.Contains(bad[subject], text) {
				return false
			}
		}
		return true
	})
}

// TestExamineSentinels looks at three that are well, that have a quorum which is too
// great or too small, and that die one after the other; and at one alone.
func TestExamineSentinels(t *testing.T) {
	t.Parallel()
	w := server.StartWatched(t, 1, server.Redis{AppendOnly: true}, silence)
	client := openURL(t, sentinelURL(w)+"?dlock.replicas=1", nil)
	complains(t, client, nil)
	setQuorum := func(n int) {
		for _, sentinel := range w.Sentinels {
			must[any](t)(plainClient(t, sentinel).Do(within(t), "sentinel", "set", server.PrimaryName, "quorum", n).Result())
		}
	}
	last := w.Sentinels[2].Addr()
	setQuorum(5)
	complains(t, client, map[string]string{"sentinels": last + ": 5 have to miss the master, and there are 3: no replica is ever promoted"})
	setQuorum(1)
	complains(t, client, map[string]string{"sentinels": last + ": 1 of 3 that miss the master are enough"})
	setQuorum(2)
	complains(t, client, nil)

	must[any](t)(nil, w.Sentinels[0].Kill())
	complains(t, client, map[string]string{"sentinels": "warning: " + w.Sentinels[0].Addr()})
	must[any](t)(nil, w.Sentinels[1].Kill())
	eventually(t, "the last one misses the others", func() bool {
		return strings.Contains(complaints(t, client)["sentinels"], last+": too few others answer")
	})

	must[any](t)(nil, w.Sentinels[2].Kill()) // it would tell the next of itself
	lonely := server.Start(t, server.Sentinel{Primary: w.Primary.Addr(), Quorum: 1, DownAfter: silence})
	few := openURL(t, "redis+sentinel://"+lonely.Addr()+"/"+server.PrimaryName+"?dlock.replicas=1", nil)
	eventually(t, "a single Sentinel", func() bool {
		return strings.Contains(complaints(t, few)["sentinels"], lonely.Addr()+": 1 of them watch the master")
	})
	_, err := dlock.Open(within(t), "redis://"+lonely.Addr(), nil) // with the address of a Sentinel for that of its master
	if is(t, err, dlock.ErrInvalidConfig); !strings.Contains(err.Error(), "redis+sentinel") {
		t.Error(err)
	}
}

// TestExamineSentinelsThatDisagree has one of three name another master than the rest, as one that was taken out
// and left running.
func TestExamineSentinelsThatDisagree(t *testing.T) {
	t.Parallel()
	w := server.StartWatched(t, 1, server.Redis{AppendOnly: true}, silence)
	client := openURL(t, sentinelURL(w)+"?dlock.replicas=1", nil)
	complains(t, client, nil)
	stale := w.Sentinels[0]
	host, port, err := net.SplitHostPort(server.Start(t, server.Redis{}).Addr())
	must[any](t)(nil, err)
	must[any](t)(plainClient(t, stale).Do(within(t), "sentinel", "remove", server.PrimaryName).Result())
	must[any](t)(plainClient(t, stale).Do(within(t), "sentinel", "monitor", server.PrimaryName, host, port, 2).Result())
	want := stale.Addr() + ": it says that the master is " + net.JoinHostPort(host, port) + ", and others " + w.Primary.Addr()
	if text := complaints(t, client)["sentinels"]; !strings.Contains(text, want) {
		t.Errorf("got %q, want %q in it", text, want)
	}
	for _, s := range w.Sentinels[1:] {
		if text := complaints(t, client)["sentinels"]; strings.Contains(text, s.Addr()+": it says") {
			t.Errorf("of one that is right: %s", text)
		}
	}
}
