package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/memory"
	dlockotel "github.com/dlock-go/dlock/otel"
)

const lateProvider = "DLOCK_TEST_LATE_PROVIDER" // names the backend of a process of TestModelOfALateProvider

// TestModelOfALateProvider has the program set its meter provider, which it can once in a
// process, in the middle of the work of TestModel. What has begun by then counts in the
// gauges, and what ends from then on in all else.
func TestModelOfALateProvider(t *testing.T) {
	switch os.Getenv(lateProvider) {
	case "memory":
		modelLateProvider(t, *calls/20, 3*time.Millisecond, startMemory)
	case "redis":
		modelLateProvider(t, *calls/100, 30*time.Millisecond, startRedis)
	default:
		for _, on := range []string{"memory", "redis"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestModelOfALateProvider$", "-test.v", fmt.Sprint("-calls=", *calls), fmt.Sprint("-seed=", *seed))
			cmd.Env = append(os.Environ(), lateProvider+"="+on)
			out, err := cmd.CombinedOutput()
			t.Logf("%s\n%s", on, out)
			if err != nil {
				t.Errorf("%s: %v", on, err)
			}
		}
	}
}

func modelLateProvider(t *testing.T, calls int, wait time.Duration, start func(*testing.T) (func() backend.Backend, func(*rand.Rand))) {
	chooseSeed(t)
	open, disturb := start(t)
	w := newWorkload(t, open, wait, calls)
	w.makeHooks()
	early, err := dlock.New(memory.New(nil), &dlock.Options{Hooks: w.hooks})
	must(t, err)
	lease, err := early.Mutex("early").Lock(t.Context()) // from before the provider until after it
	must(t, err)
	w.outcomes["acquired"]++

	var before, after map[string]int // calls when the provider is set
	var isSet atomic.Bool
	w.middleAt, w.middle = int64(calls/2), func() {
		before = w.outcomesNow()
		otel.SetMeterProvider(w.provider)
		after = w.outcomesNow()
		isSet.Store(true)
	}
	w.run(func(r *rand.Rand) {
		if isSet.Load() {
			if n := sums(t, w.reader, "dlock.lease.active", "")[""]; n < 1 {
				t.Errorf("%d leases are active, and one is known to be", n)
			}
		}
		disturb(r)
	})
	must(t, lease.Unlock(t.Context()))
	must(t, early.Close(t.Context()))

	w.checkGauges()
	w.checkSpans()
	got := sums(t, w.reader, "dlock.acquire.duration", dlockotel.OutcomeKey)
	for what, total := range w.outcomes {
		least, most := total-after[what]-clientsAtOnce*workersEach, total-before[what]
		if got[what] < least || got[what] > most {
			t.Errorf("%d calls were %s since the provider was set, want %d to %d", got[what], what, least, most)
		}
	}
}

// outcomesNow are those of the calls that have ended.
func (w *workload) outcomesNow() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.outcomes)
}
