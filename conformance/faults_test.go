package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
)

// ownHarness reaches a server in memory. Its clients' faults are those of a
// wrapper.
func ownHarness() Harness {
	server := memory.NewServer()
	return Harness{
		Name: "faults", Version: "1", Scheme: "memory", TTL: time.Second, Leased: true,
		Open: func(t testing.TB, o dlock.Options) *Peer {
			f := NewFaults(memory.New(server))
			c, err := dlock.New(f.Backend(), &o)
			if err != nil {
				t.Fatal(err)
			}
			p := &Peer{Client: c, Backend: f.Backend()}
			f.Disturb(p)
			return p
		},
		Evict:   func(_ testing.TB, name string) { server.Evict(name) },
		Ops:     server.Ops,
		Waiting: func(_ testing.TB, name string) int { return server.Waiting(name) },
		Residue: func(testing.TB) []string { return nil },
		Optional: []string{
			"BatchReleaser", "Breaker", "Downgrader", "Expirer", "Inspector", "MinTTLer", "Pinger", "Reenterer", "Renewer", "Transferer",
		},
	}
}

// TestFaults runs the properties that need faults with those of the wrapper.
func TestFaults(t *testing.T) {
	for _, name := range []string{
		"Close/Cut", "Context/CancelWhileUnanswered", "Break/Holder", "Inspect/Holder", "Ping/Answers", "Keep/SurvivesBlip", "Lock/Resent", "Loss/Cut", "Loss/WhileWaiting",
		"Reentry/LostReply", "Reentry/NeverShortens", "RW/LeaseMatrix", "Sent/Acquire", "Sent/Grant", "Sent/Renewal",
		"Unlock/Resent", "Wait/LateGrant",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ownHarness()
			s := newScenario(t, &h, limit)
			Seed{Property: name}.property().test(s)
			if s.inapt != "" {
				t.Error("not applicable")
			}
		})
	}
}

func TestFailNext(t *testing.T) {
	f := NewFaults(memory.New(nil))
	c, err := dlock.New(f.Backend(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	boom := errors.New("boom")
	f.FailNext(backend.Fail(backend.ErrUnavailable, boom))
	if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, boom) || !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Mutex("x").TryLock(t.Context()); err != nil {
		t.Errorf("the call after that: %v", err)
	}
}

// A harness that can do nothing passes nothing that it cannot show.
func TestWhatTheHarnessCannotDoIsNotPassed(t *testing.T) {
	full := ownHarness()
	poor := full
	poor.Ops = nil
	poor.Open = func(t testing.TB, o dlock.Options) *Peer {
		p := full.Open(t, o)
		p.Cut, p.Delay, p.DropReply = nil, nil, nil
		return p
	}
	var r Report
	for _, name := range []string{
		"Bad/Credentials", "Bad/ForeignState", "Bad/Unreachable", "Close/BorrowedClientStaysOpen", "Close/Cut",
		"Context/CancelWhileUnanswered", "Crash/HolderKilled", "Crash/Restart", "Keep/SurvivesBlip", "Lock/Resent",
		"Loss/WhileWaiting", "Register/Proposal", "Sent/Acquire", "Token/GrowsAcrossDataLoss", "Token/GrowsAcrossRestart",
		"Unlock/Resent", "Wait/NoHerd", "Wait/NoPolling",
	} {
		p := Seed{Property: name}.property()
		var s *scenario
		tr := try(t, func(tr *recorder) {
			h := poor
			s = newScenario(tr, &h, limit)
			p.test(s)
		})
		r.note(tr, s, p)
		if !slices.Contains(r.NotApplicable, name) {
			t.Errorf("%s counts as passed or failed:\n%s", name, tr.output())
		}
	}
	if r.Passed != 0 || !strings.Contains(r.String(), fmt.Sprintf("%d n/a", len(r.NotApplicable))) {
		t.Errorf("the report says: %s", r)
	}
}

// What a failure tells: who held what since when under which token, what each
// believed, the limits, and whether there was a processor.
func TestFailureTellsWhoHeldWhat(t *testing.T) {
	stallTime.mu.Lock()
	before := stallTime.stalls
	stallTime.mu.Unlock()
	defer func() {
		stallTime.mu.Lock()
		defer stallTime.mu.Unlock()
		stallTime.stalls = before
	}()
	h := ownHarness()
	h.Name = "told"
	var token uint64
	r := try(t, func(r *recorder) {
		s := newScenario(r, &h, limit)
		lease := s.locked(s.open().Mutex(s.name))
		token = lease.Token()
		stallTime.add(stall{time.Now(), 2100 * time.Millisecond})
		s.Fatal("this fails")
	})
	for _, want := range []string{
		"this fails", "client 1 acquired", fmt.Sprintf("token %d", token), "believes that it holds", "TTL 1s", "limit of the property 2m0s",
		"did not run for 2.1s", "-run '^TestFailureTellsWhoHeldWhat$'",
	} {
		if !strings.Contains(r.output(), want) {
			t.Errorf("a failure does not say %q but\n%s", want, r.output())
		}
	}
}

// A bug that nothing notices is a failure of the harness.
func TestSeedThatIsNotCaught(t *testing.T) {
	harmless := Seed{Name: "none", Trap: "nothing is wrong", Property: "TryLock/Free", plant: layered(func(backend.Backend) Layer { return Layer{} })}
	r := try(t, func(r *recorder) {
		if !harmless.caught(r, ownHarness()) {
			t.Error("not applicable")
		}
	})
	if !r.Failed() {
		t.Error("a seed that no property notices counts as caught")
	}
}
