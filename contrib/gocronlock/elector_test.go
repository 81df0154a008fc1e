package gocronlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/contrib/gocronlock"
)

func newElector(t testing.TB, b *memory.Backend) *gocronlock.Elector {
	t.Helper()
	e := gocronlock.NewElector(newClient(t, b), "leader")
	t.Cleanup(func() { must(t, e.Close(context.Background())) })
	synctest.Wait()
	return e
}

// follows checks that e does not lead, because of why if that is not nil.
func follows(t testing.TB, e *gocronlock.Elector, why error) {
	t.Helper()
	err := e.IsLeader(t.Context())
	if !errors.Is(err, gocronlock.ErrNotLeader) || why != nil && !errors.Is(err, why) {
		t.Errorf("IsLeader: %v, want gocronlock.ErrNotLeader, %v", err, why)
	}
}

func leads(t testing.TB, e *gocronlock.Elector) {
	t.Helper()
	if err := e.IsLeader(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestElectorHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		first, second := newElector(t, memory.New(server)), newElector(t, memory.New(server))
		leads(t, first)
		follows(t, second, nil)
		term := first.Lease().Context(t.Context())

		must(t, first.Close(t.Context()))
		synctest.Wait()
		follows(t, first, nil)
		if term.Err() == nil {
			t.Error("the term's context goes on after Close")
		}
		leads(t, second)
		must(t, first.Close(t.Context()))
	})
}

func TestElectorThatLosesItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		first, second := newElector(t, memory.New(server)), newElector(t, memory.New(server))
		server.Evict("leader")
		<-first.Lease().Done()
		follows(t, first, nil)
		synctest.Wait()
		leads(t, second)
		must(t, second.Close(t.Context()))
		time.Sleep(time.Minute)
		leads(t, first)
	})
}

// IsLeader never says yes where another elector does, also if the leader is cut off.
func TestElectorThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		b := memory.New(server)
		first, second := newElector(t, b), newElector(t, memory.New(server))
		b.Cut()
		for second.IsLeader(t.Context()) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		follows(t, first, dlock.ErrUnavailable)
		b.Heal()
		time.Sleep(10 * time.Second)
		if err := first.IsLeader(t.Context()); errors.Is(err, dlock.ErrUnavailable) {
			t.Errorf("the server is back, the other leads: %v", err)
		}
		follows(t, first, nil)
		must(t, second.Close(t.Context()))
		synctest.Wait()
		leads(t, first)
	})
}

func TestElectorAsksNobody(t *testing.T) {
	server := memory.NewServer()
	e := gocronlock.NewElector(newClient(t, memory.New(server)), "leader")
	for e.IsLeader(t.Context()) != nil {
		time.Sleep(time.Millisecond)
	}
	before := server.Ops()
	if n := testing.AllocsPerRun(1000, func() { leads(t, e) }); n != 0 {
		t.Errorf("IsLeader allocates %v times", n)
	}
	if n := server.Ops() - before; n != 0 {
		t.Errorf("1000 calls of IsLeader made %d requests", n)
	}
	must(t, e.Close(t.Context()))
}

// An elector whose lock cannot be had says why, and ends with its client.
func TestElectorThatCannotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, memory.New(memory.NewServer()))
		e := gocronlock.NewElector(client, "")
		synctest.Wait()
		follows(t, e, dlock.ErrInvalidName)
		must(t, e.Close(t.Context()))

		e = gocronlock.NewElector(client, "leader")
		synctest.Wait()
		leads(t, e)
		must(t, client.Close(t.Context()))
		follows(t, e, dlock.ErrClosed)
		must(t, e.Close(t.Context()))
	})
}

// Close does not wait for longer than its context for a server that is silent.
func TestElectorClosesWithoutTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		client := newClient(t, memory.New(server))
		e := gocronlock.NewElector(client, "leader")
		synctest.Wait()
		server.Freeze()
		defer server.Thaw()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		follows(t, e, nil)
		must(t, e.Close(t.Context()))
	})
}

// Of two schedulers the leader's runs every job.
func TestOnlyTheLeaderRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		var electors [2]*gocronlock.Elector
		ran := make(chan int, 100)
		for i := range electors {
			electors[i] = newElector(t, memory.New(server))
			s, err := gocron.NewScheduler(gocron.WithDistributedElector(electors[i]), gocron.WithLocation(time.UTC))
			must(t, err)
			_, err = s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(func() { ran <- i }))
			must(t, err)
			s.Start()
			t.Cleanup(func() { _ = s.Shutdown() })
		}
		for leader := range electors {
			time.Sleep(5*time.Minute + time.Second)
			if len(ran) != 5 {
				t.Errorf("%d runs in five minutes", len(ran))
			}
			for range len(ran) {
				if i := <-ran; i != leader {
					t.Errorf("scheduler %d ran a job while %d led", i, leader)
				}
			}
			must(t, electors[leader].Close(t.Context()))
		}
	})
}
