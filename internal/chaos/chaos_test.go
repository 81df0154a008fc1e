package chaos

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	backends = flag.String("backend", "all", "backends to put under fire: names with commas, or all of "+known())
	rounds   = flag.Int("faults", 3, "how many faults to inject, for each backend")
	seed     = flag.Uint64("seed", 0, "what to choose the faults by; 0 for another one each time")
	duration = flag.Duration("duration", 0, "go on that long at least")
	docs     = flag.String("docs", "", "where to write the matrix with what was seen")
	only     = flag.String("only", "", "IDs of the faults to inject, with commas; empty: all")
	think    = flag.Duration("think", 20*time.Millisecond, "how long a caller rests between two turns")
)

func known() string { return strings.Join(slices.Sorted(maps.Keys(subjects)), ", ") }

func TestMain(m *testing.M) {
	if code, is := Main(); is {
		os.Exit(code)
	}
	if err := flag.Set("test.parallel", "4"); err != nil { // faults wait more than they work
		panic(err)
	}
	code := m.Run()
	if *docs != "" && code == 0 {
		if err := report.write(*docs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func chosen(t testing.TB) []string {
	t.Helper()
	names := strings.Split(*backends, ",")
	if *backends == "all" {
		names = slices.Sorted(maps.Keys(subjects))
	}
	for _, name := range names {
		if subjects[name] == nil {
			t.Fatalf("no backend %q; there are %s", name, known())
		}
	}
	return names
}

// TestChaos puts each backend under fire.
func TestChaos(t *testing.T) {
	for _, name := range chosen(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unleash(t, name)
		})
	}
}

func unleash(t *testing.T, name string) {
	o := Options{Seed: *seed, Rounds: *rounds, For: *duration, Workers: 3, Callers: 4, Think: *think, Log: t.Logf}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	var err error
	o.Dir, err = os.MkdirTemp("", "dlock-chaos-")
	must(t, err)
	s := subjects[name](t)
	if *only != "" {
		s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return !slices.Contains(strings.Split(*only, ","), f.ID) })
	}
	result, err := Run(t.Context(), s, o)
	fmt.Println(result)
	report.run(result)
	if err != nil {
		t.Error(err)
	}
	for _, v := range result.Violations {
		t.Error(v)
	}
	if result.Operations == 0 {
		t.Error("nobody did anything")
	}
	if t.Failed() {
		keep(t, o)
		return
	}
	must(t, os.RemoveAll(o.Dir))
}

// keep says where the history is and how to have the same faults again.
func keep(t *testing.T, o Options) {
	name := filepath.Base(t.Name())
	t.Logf("the history is in %s; again: go test ./internal/chaos -run TestChaos -backend=%s -faults=%d -seed=%d", o.Dir, name, o.Rounds, o.Seed)
}

// TestNemesisFindsTwoHolders lets the server forget who holds a lock, and does
// not excuse it: unless the run says that two held one lock, it is blind.
func TestNemesisFindsTwoHolders(t *testing.T) {
	t.Parallel()
	s := memorySubject(t)
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return f.ID != "F-32" })
	s.Faults[0].Forgets = false
	o := Options{Seed: 1, Rounds: 10, Workers: 3, Callers: 4, Think: time.Millisecond, Dir: t.TempDir(), Log: t.Logf}
	result, err := Run(t.Context(), s, o)
	must(t, err)
	if !slices.ContainsFunc(result.Violations, func(v Violation) bool { return v.Rule == "I3" }) {
		t.Errorf("nothing wrong in %v", result)
	}
}

// The same seed injects the same faults.
func TestSeedReplaysTheFaults(t *testing.T) {
	all := append(ProcessFaults(), NetworkFaults(time.Second)...)
	ids := func(seed uint64) (ids []string) {
		for f := range plan(rand.New(rand.NewPCG(seed, 1)), all) {
			if ids = append(ids, f.Name); len(ids) == 50 {
				break
			}
		}
		return ids
	}
	if a, b := ids(7), ids(7); !slices.Equal(a, b) {
		t.Errorf("one seed, two plans: %v, %v", a, b)
	}
	if a, b := ids(7), ids(8); slices.Equal(a, b) {
		t.Error("two seeds, one plan")
	}
	for _, f := range all {
		if !slices.Contains(ids(7)[:len(all)], f.Name) {
			t.Errorf("%s does not come in the first %d", f.Name, len(all))
		}
	}
}
