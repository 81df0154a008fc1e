package conformance

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// A Seed is a bug that a backend invites, put between package dlock and a backend
// that is right. [Seeds] lists them; [TestSeeds] shows that a harness lets the
// suite see them.
type Seed struct {
	// Name and Trap say what is wrong, in a few words and in a sentence.
	Name, Trap string

	// Property is the one of the suite that fails for it, and Says a part of what
	// it says then, or several parts with | between, of which it says one: a property
	// may fail on a slow machine for another reason.
	Property, Says string

	// Needs lists the optional interfaces without which there can be no such bug.
	Needs []string

	// plant returns how to put the bug into the clients of one harness, whose
	// functions it may change.
	plant func(h *Harness) func(p *Peer)
}

// seedTTL is as long a lease as the seeds need to show.
const seedTTL = 2 * time.Second

// seedLimit bounds a property with a bug in it.
const seedLimit = 20 * time.Second

// seedTries is how often a property may run before a bug counts as not noticed: on
// a slow machine a lock may take the way on which the bug does not lie.
const seedTries = 10

// TestSeeds puts each of the [Seeds] into the backend behind h and checks that the
// suite notices, each in a subtest. A bug that the backend cannot have, or that
// the harness has no way to show, is counted as not applicable. It takes about ten
// seconds with 16 tests in parallel. At least a dozen of the bugs apply to any backend; more
// to one whose harness can do more.
func TestSeeds(t *testing.T, h Harness) {
	h.check(t)
	h.TTL = min(h.TTL, seedTTL)
	var caught, inapt atomic.Int64
	run := func(t *testing.T, seed Seed) {
		if seed.caught(t, h) {
			caught.Add(1)
		} else {
			inapt.Add(1)
		}
	}
	t.Run("each", func(t *testing.T) {
		for _, seed := range Seeds() {
			if !seed.property().quiet {
				t.Run(seed.Name, func(t *testing.T) {
					t.Parallel()
					run(t, seed)
				})
			}
		}
	})
	for _, seed := range Seeds() {
		if seed.property().quiet {
			t.Run(seed.Name, func(t *testing.T) { run(t, seed) })
		}
	}
	t.Logf("%s: %d seeded bugs, %d caught, %d n/a", h.Name, len(Seeds()), caught.Load(), inapt.Load())
	if caught.Load() < 10 {
		t.Errorf("%s: %d seeded bugs were caught, want ten at least", h.Name, caught.Load())
	}
}

// caught reports whether the bug was, or else was not applicable. It fails the test
// if it should have been.
func (seed Seed) caught(t testing.TB, h Harness) bool {
	for _, need := range seed.Needs {
		if !slices.Contains(h.Optional, need) {
			t.Logf("n/a: the backend is no %s", need)
			return false
		}
	}
	r, s := seed.record(t, h)
	for tries := 1; tries < seedTries && !r.Failed() && !r.Skipped() && s.inapt == ""; tries++ {
		r, s = seed.record(t, h)
	}
	switch {
	case r.Skipped() || s != nil && s.inapt != "":
		t.Log(r.output())
		return false
	case !r.Failed():
		t.Errorf("%s: %s passes", seed.Trap, seed.Property)
	case !slices.ContainsFunc(strings.Split(seed.Says, "|"), func(text string) bool { return strings.Contains(r.output(), text) }):
		t.Errorf("%s: %s does not say %q but\n%s", seed.Trap, seed.Property, seed.Says, r.output())
	}
	return true
}

// record runs the property with the bug in place.
func (seed Seed) record(t testing.TB, h Harness) (r *recorder, s *scenario) {
	r = try(t, func(r *recorder) {
		harness := h
		harness.plant(seed)
		s = newScenario(r, &harness, seedLimit)
		seed.property().test(s)
	})
	return r, s
}

func (seed Seed) property() property {
	i := slices.IndexFunc(properties, func(p property) bool { return p.name == seed.Property })
	return properties[i]
}

// plant has every client of h get the bug.
func (h *Harness) plant(seed Seed) {
	plant := seed.plant(h)
	open := h.Open
	h.Open = func(t testing.TB, o dlock.Options) *Peer {
		t.Helper()
		p := open(t, o)
		sound := p.Client
		t.Cleanup(func() { _ = sound.Close(t.Context()) })
		plant(p)
		var err error
		if p.Client, err = dlock.New(p.Backend, &o); err != nil {
			t.Fatal(err)
		}
		return p
	}
}
