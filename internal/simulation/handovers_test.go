package simulation

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/renewal"
)

// idOfMode is the id of a request of the client of a world.
func idOfMode(mode string) string { return mode + "1000:" + strings.Repeat("0", 32) + ":1" }

// served are the violations of a world of one client and some servers in which f happens. Members have a hold of
// it on the lock "a".
func served(t *testing.T, servers, members int, f func(w *world, r *register)) (violations []Violation) {
	synctest.Test(t, func(t *testing.T) {
		p := &Plan{Backend: "redis", Servers: servers, Names: 1, TTL: time.Second, Clients: []Party{{Hooks: "count"}}}
		if servers > 1 {
			p.Backend = "quorum"
		}
		w := &world{plan: p, labels: []string{"c0"}}
		w.reg = newRegister(w)
		w.owners.Store(strings.Repeat("0", 32), "c0")
		c := &client{closed: make(chan struct{})}
		w.clients = []*client{c}
		_, c.hooks = w.listens(c)
		var masters []*server
		for i := range servers {
			s := newServer(i, 0, &w.owners, nil, nil)
			s.world = w
			masters = append(masters, s)
			if i < members {
				w.reg.lock("a").last[i] = truth{holder: idOfMode("w"), expiry: s.clock().UnixMilli() + 1000, token: 3}
			}
		}
		w.now.Store(&masters)
		f(w, w.reg)
		time.Sleep(10 * late)
		synctest.Wait()
		violations = w.reg.violations
	})
	return violations
}

// A hand-over that is told otherwise than it was is found.
func TestLiesOfHandOvers(t *testing.T) {
	const no, local, remote = dlock.NoHandOver, dlock.LocalHandOver, dlock.RemoteHandOver
	came := func(r *register, name string, token uint64, how dlock.HandOver) {
		id := idOfMode("w") + name
		if how != local {
			r.lock(name).tokenOf[id] = token
		}
		if how == remote {
			r.lock(name).queued[requestOf(id)] = time.Now()
		}
	}
	for _, c := range []struct{ a, b, told dlock.HandOver }{
		{no, no, no}, {no, remote, remote}, {remote, local, remote}, {local, no, local}, {no, local, local},
		{no, remote, no}, {remote, local, local}, {local, no, no}, {no, no, remote},
	} {
		v := served(t, 1, 0, func(_ *world, r *register) {
			came(r, "a", 3, c.a)
			came(r, "b", 5, c.b)
			all := []*belief{{name: "a", token: 3, multi: true}, {name: "b", token: 5, multi: true}, {name: "c", token: 9, multi: true, parent: new(belief)}}
			r.handsOverAll(0, dlock.AcquiredEvent{Name: "a b c", HandOver: c.told}, all)
		})
		want := no
		if c.a == remote || c.b == remote {
			want = remote
		} else if c.a == local || c.b == local {
			want = local
		}
		if lies := c.told != want; lies != (len(v) > 0) {
			t.Errorf("%+v: %v", c, v)
		}
	}
	for _, c := range []struct {
		queued       bool
		first, other dlock.HandOver
		lies         bool
	}{{true, remote, no, false}, {false, no, no, false}, {true, no, no, true}, {false, remote, no, true}, {false, local, no, true}} {
		v := served(t, 1, 0, func(_ *world, r *register) {
			r.lock("a").tokenOf[idOfMode("r")] = 3
			if c.queued {
				r.lock("a").queued[requestOf(idOfMode("r"))] = time.Now()
			}
			for _, how := range []dlock.HandOver{c.first, c.other} {
				r.judgesHandOver(0, dlock.AcquiredEvent{Op: "rlock", Name: "a", FullName: "a", Shared: true, Token: 3, HandOver: how})
			}
		})
		if c.lies != (len(v) > 0) {
			t.Errorf("readers, %+v: %v", c, v)
		}
	}
	for _, c := range []struct {
		token uint64
		told  dlock.HandOver
		lies  bool
	}{{3, no, false}, {4, local, false}, {3, local, true}, {4, no, true}, {4, remote, true}} {
		v := served(t, 3, 2, func(_ *world, r *register) {
			r.judgesHandOver(0, dlock.AcquiredEvent{Op: "lock", Name: "a", FullName: "a", Token: c.token, HandOver: c.told})
		})
		if c.lies != (len(v) > 0) {
			t.Errorf("on a quorum, %+v: %v", c, v)
		}
	}
}

// A lock that hooks are told was taken, while enough servers have it, is found.
func TestLiesOfLosses(t *testing.T) {
	for _, c := range []struct {
		servers, members int
		cut              string // what goes wrong between the client and the second
		lies             bool
	}{
		{1, 0, "", false}, {1, 1, "", true}, {3, 1, "", false}, {3, 2, "", true},
		{3, 2, "hole", false}, {3, 2, "mute", true}, {3, 3, "hole", true},
	} {
		v := served(t, c.servers, c.members, func(_ *world, r *register) {
			if c.cut != "" {
				r.touch(Fault{Kind: c.cut, Server: 1, For: time.Second})
			}
			r.judgesLoss(0, dlock.LostEvent{Name: "a", Token: 3, Cause: dlock.LossTaken}, 0)
		})
		if c.lies != (len(v) > 0) {
			t.Errorf("%+v: %v", c, v)
		}
	}
	for left, lies := range map[time.Duration]bool{-time.Second: false, time.Second: true} {
		v := served(t, 1, 0, func(_ *world, r *register) {
			b := &belief{name: "a"}
			r.runsOut(b, time.Now().Add(left))
			r.hasRunOut(b, &dlock.Error{Kind: dlock.ErrLost, Err: renewal.ErrNoAnswer})
		})
		if lies != (len(v) > 0) {
			t.Errorf("%v before its end: %v", left, v)
		}
	}
}

// Close that does not name what enough members of a quorum have is found.
func TestCloseThatNamesNothing(t *testing.T) {
	for _, c := range []struct {
		members int
		err     error
		lies    bool
	}{
		{1, nil, false}, {2, nil, true},
		{2, errors.New(`not confirmed to be free: "b"`), true}, {2, errors.New(`not confirmed to be free: "a"`), false},
	} {
		v := served(t, 3, c.members, func(_ *world, r *register) {
			r.see(0, []string{"a", "b"})
			r.calls[&call{what: "unlock", names: []string{"a"}}] = true
			k := r.closes(0)
			r.touches = append(r.touches, touched{kind: "reset", client: 0, to: time.Now()})
			err := c.err
			if err != nil {
				err = &dlock.Error{Op: "close", Kind: dlock.ErrUnavailable, Err: err}
			}
			r.judgesClose(0, k, err)
		})
		if c.lies != (len(v) > 0) {
			t.Errorf("%+v: %v", c, v)
		}
	}
}

// A token that came twice, after Break and a loss of data, does not tell from whom its second hold came: the first
// had queued.
func TestHandOverOfATokenThatCameTwice(t *testing.T) {
	found := served(t, 1, 0, func(_ *world, r *register) {
		l := r.lock("a")
		first, second := idOfMode("w"), strings.Replace(idOfMode("w"), ":1", ":2", 1)
		l.tokenOf[first], l.tokenOf[second], l.queued[requestOf(first)] = 7, 7, time.Now()
		r.judgesHandOver(0, dlock.AcquiredEvent{Op: "lock", Name: "a", FullName: "a", Token: 7})
		delete(l.tokenOf, second)
		r.judgesHandOver(0, dlock.AcquiredEvent{Op: "lock", Name: "a", FullName: "a", Token: 7})
	})
	if len(found) != 1 {
		t.Errorf("%v", found)
	}
}
