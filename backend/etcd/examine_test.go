package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/server"
)

// A syncBuffer takes what several goroutines write.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestWarnsOfTheVersion opens a client of the distribution's etcd, which is 3.4.23.
func TestWarnsOfTheVersion(t *testing.T) {
	s := server.Start(t, server.Etcd{Distribution: true})
	var log syncBuffer
	c, err := dlock.Open(timed(t), "etcd://"+s.Addr(), &dlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer c.Close(timed(t))
	eventually(t, "a warning of "+s.Version(), func() bool {
		return strings.Contains(log.String(), s.Version()) && strings.Contains(log.String(), "#15247")
	})
}

// examine returns the findings that are not as they should be, by subject, of a client
// that is open already. None of them shows a password, and nothing is left behind.
func examine(t testing.TB, b backend.Backend, admin *clientv3.Client) map[string]backend.Finding {
	t.Helper()
	bad, subjects := make(map[string]backend.Finding), make(map[string]bool)
	must(t, b.(backend.Examiner).Examine(timed(t), func(f backend.Finding) {
		subjects[f.Subject] = true
		if strings.Contains(fmt.Sprint(f), "pass/of") {
			t.Errorf("a finding shows the password: %v", f)
		}
		if (f.Level > backend.OK) != (f.Advice != "") {
			t.Errorf("advice is for what is not as it should be: %v", f)
		}
		if f.Level > backend.OK && f.Level >= bad[f.Subject].Level {
			bad[f.Subject] = f
		}
	}))
	for _, subject := range []string{"members", "version", "quota", "leader", "alarms", "locks", "login"} {
		if !subjects[subject] {
			t.Errorf("nothing is said of %s", subject)
		}
	}
	queued(t, admin, 0)
	return bad
}

func openBackend(t testing.TB, url string, ttl time.Duration) backend.Backend {
	t.Helper()
	u, err := backend.ParseURL(url)
	must(t, err)
	b, err := backend.Open(timed(t), backend.Config{URL: u, TTL: ttl})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		b.Close(ctx)
	})
	return b
}

// found compares the findings with the parts of their texts that are wanted.
func found(t testing.TB, bad map[string]backend.Finding, want map[string]string) {
	t.Helper()
	for subject, text := range want {
		if f := bad[subject]; text == "" || !strings.Contains(f.Text, text) {
			t.Errorf("%s: %+v, want %q", subject, f, text)
		}
	}
	for subject, f := range bad {
		if _, ok := want[subject]; !ok {
			t.Errorf("not wanted: %+v", f)
		}
	}
}

const oneMember = "the cluster has one member"

// TestExamineLogin looks at servers by the kind of their logins: signed tokens are well.
func TestExamineLogin(t *testing.T) {
	t.Parallel()
	const user = "no user is given"
	signed, root := guarded(t, jwt(t, time.Hour))
	b := openBackend(t, as(t, "app", "pass/of/app", signed.Addr()), keptTTL)
	found(t, examine(t, b, root), map[string]string{"members": oneMember})
	_, err := root.UserRevokeRole(timed(t), "app", "locker")
	must(t, err)
	bad := examine(t, b, root)
	found(t, bad, map[string]string{"members": oneMember, "locks": "permission denied"})
	if f := bad["locks"]; f.Level != backend.Fault || !strings.Contains(f.Advice, "readwrite on the prefix "+prefix(t)+"/") {
		t.Errorf("got %+v", f)
	}

	short, root := guarded(t, jwt(t, 20*time.Second))
	found(t, examine(t, openBackend(t, as(t, "app", "pass/of/app", short.Addr()), keptTTL), root),
		map[string]string{"members": oneMember, "login": "lasts for"})
	simple, root := guarded(t)
	found(t, examine(t, openBackend(t, as(t, "app", "pass/of/app", simple.Addr()), keptTTL), root),
		map[string]string{"members": oneMember, "login": "tokens are simple"})

	admin := raw(t, shared.Addr())
	found(t, examine(t, openBackend(t, as(t, "app", "pass/of/app", shared.Addr()), keptTTL), admin),
		map[string]string{"members": oneMember, "login": "authentication is not enabled"})
	found(t, examine(t, openBackend(t, "etcd://"+shared.Addr()+"/"+prefix(t), keptTTL), admin),
		map[string]string{"members": oneMember, "login": user})
}

// TestExamineServer finds a full server, one whose leases are long, and one whose data
// differ.
func TestExamineServer(t *testing.T) {
	t.Parallel()
	k := kind()
	k.Args = append(k.Args, "--quota-backend-bytes=4194304", "--election-timeout=2000")
	s := server.Start(t, k)
	admin, b := raw(t, s.Addr()), openBackend(t, "etcd://"+s.Addr()+"/"+prefix(t), time.Second)
	want := map[string]string{"members": oneMember, "login": "no user", "lease": "a lease of 1s is granted for 3s"}
	found(t, examine(t, b, admin), want)
	for full := false; !full; {
		_, err := admin.Put(timed(t), "fill", strings.Repeat("x", 100_000))
		full = err != nil
	}
	delete(want, "lease") // it is seen with a lock only
	want["alarms"], want["locks"], want["quota"] = "NOSPACE", "no lock can be taken", "its quota is 4 MB"
	found(t, examine(t, b, admin), want)
	makeRoom(t, admin, s.Addr())

	status, err := admin.Status(timed(t), s.Addr())
	must(t, err)
	differs := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_CORRUPT}
	_, err = pb.NewMaintenanceClient(admin.ActiveConnection()).Alarm(timed(t), differs)
	must(t, err)
	alarm := ""
	must(t, b.(backend.Examiner).Examine(timed(t), func(f backend.Finding) {
		if f.Level == backend.Fault && f.Subject == "alarms" {
			alarm = f.Text
		}
	}))
	if !strings.Contains(alarm, "CORRUPT") {
		t.Errorf("got %q", alarm)
	}
}

// TestExamineVersion finds an old server.
func TestExamineVersion(t *testing.T) {
	s := server.Start(t, server.Etcd{Distribution: true})
	bad := examine(t, openBackend(t, "etcd://"+s.Addr()+"/"+prefix(t), keptTTL), raw(t, s.Addr()))
	found(t, bad, map[string]string{"members": oneMember, "login": "no user", "version": "#15247"})
}

// TestExamineMembers finds a member that the URL does not name, one that is down, and
// that none answers.
func TestExamineMembers(t *testing.T) {
	t.Parallel()
	members := startCluster(t)
	url := func(m cluster) string { return "etcd://" + strings.Join(m.addrs(), ",") + "/" + prefix(t) }
	all, some := openBackend(t, url(members), keptTTL), openBackend(t, url(members[:1]), keptTTL)
	admin := raw(t, members.addrs()...)
	want := map[string]string{"login": "no user"}
	found(t, examine(t, all, admin), want)
	want["members"] = "1 of 3 members are in the URL and answer, which is no majority"
	found(t, examine(t, some, admin), want)
	must(t, members[2].Close())
	want["members"] = "2 of 3 members"
	eventually(t, "a lock beside a member that is down", func() bool {
		return examine(t, all, admin)["locks"].Level == backend.OK
	})
	silent := false
	must(t, all.(backend.Examiner).Examine(timed(t), func(f backend.Finding) {
		silent = silent || strings.Contains(f.Text, members[2].Addr()+" does not answer")
	}))
	if !silent {
		t.Error("nothing is said of the member that does not answer")
	}
	found(t, examine(t, all, admin), want)
	must(t, members[0].Close())
	last := members[1].Addr()
	eventually(t, "the last member knows that it is alone", func() bool {
		bad := make(map[string]string)
		must(t, all.(backend.Examiner).Examine(timed(t), func(f backend.Finding) {
			if f.Level == backend.Fault {
				bad[f.Subject] = f.Text
			}
		}))
		return strings.Contains(bad["leader"], last+" knows no leader") && bad["locks"] != "" && bad["members"] != ""
	})
	u, err := backend.ParseURL("etcd://" + last)
	must(t, err)
	_, err = backend.Open(timed(t), backend.Config{URL: u, TTL: keptTTL})
	if is(t, err, backend.ErrUnavailable); err == nil || !strings.Contains(err.Error(), "see that a majority of the members runs") {
		t.Errorf("what Open says of a cluster with no leader: %v", err)
	}
	is(t, some.(backend.Examiner).Examine(timed(t), func(backend.Finding) {}), backend.ErrUnavailable)
}
