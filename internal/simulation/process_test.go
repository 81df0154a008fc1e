package simulation

import (
	"context"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

// standsStill runs TestProcess where a process can be stopped.
func standsStill(t *testing.T, binary string) {
	t.Helper()
	test := exec.Command(binary, "-test.run=^TestProcess$")
	test.Env = append(os.Environ(), "SIMULATION_WORKER=1")
	if out, err := test.CombinedOutput(); err != nil {
		t.Fatalf("a process does not stand still: %v\n%s", err, out)
	}
}

// TestProcess is run by TestStandstills, in a worker: nothing in a process goes on while that is stopped, neither
// goroutines nor timers, and all of it does when it goes on.
func TestProcess(t *testing.T) {
	if os.Getenv("SIMULATION_WORKER") == "" {
		return
	}
	if !slowsync.HasProcesses() {
		t.Fatal("the runtime has no processes")
	}
	synctest.Test(t, func(t *testing.T) {
		var ticks, ended, others atomic.Int32
		said, stop := make(chan int), make(chan struct{})
		count := func(n *atomic.Int32) {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					n.Add(1)
				}
			}
		}
		p := slowsync.NewProcess("p")
		p.Run(func() {
			go count(&ticks)
			time.AfterFunc(200*time.Millisecond, func() { ended.Add(1) })
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			go func() {
				defer cancel()
				<-ctx.Done()
				ended.Add(1)
			}()
			go func() {
				<-said
				ended.Add(1)
			}()
		})
		go count(&others)
		time.Sleep(105 * time.Millisecond)
		p.Stop()
		said <- 1
		before := ticks.Load()
		time.Sleep(time.Second)
		if now, e := ticks.Load(), ended.Load(); now != before || e != 0 || others.Load() < 100 {
			t.Errorf("%d ticks before, and %d; %d of its waits have ended; others have counted %d", before, now, e, others.Load())
		}
		p.Continue(1)
		synctest.Wait()
		if e := ended.Load(); e != 3 || ticks.Load() != before+1 {
			t.Errorf("%d of 3 waits have ended, and %d ticks since", e, ticks.Load()-before)
		}
		close(stop)
	})
}
