package protocol

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var histories = flag.Int("histories", 40, "how many histories each test plays that must find nothing")

// enough histories show that a rule is needed.
const enough = 1000

// hard has everything in it that a network and its clients can do.
var hard = Config{
	Clients: 6, TTL: 3 * second, Length: 90 * second, Settling: 11 * second,
	Loss: 0.05, Slow: 0.03, Shared: 0.3, Cancel: 0.1, Pass: 0.3, Downgrade: 0.1,
	Crash: 20 * second, Stop: 10 * second, Deaf: 10 * second,
}

// calm has nothing of it.
var calm = Config{
	Clients: 6, TTL: 3 * second, Length: 90 * second, Settling: 11 * second,
	Shared: 0.3, Cancel: 0.1, Pass: 0.3, Downgrade: 0.1,
}

func with(c Config, change func(*Config)) Config {
	change(&c)
	return c
}

// A trial is a kind of history, and how long clients may have to wait for what
// they could have in it. Zero means that it is not looked at.
type trial struct {
	Config
	sleep, ghost, forgotten, broken int64
}

func (tr trial) fails(w *World) bool {
	over := func(is, limit int64) bool { return limit > 0 && is > limit }
	return len(w.Violations) > 0 || over(w.LongestSleep, tr.sleep) || over(w.LongestGhost, tr.ghost) || over(w.LongestForgotten, tr.forgotten) || over(w.LongestBroken, tr.broken)
}

// trials has, for each rule, histories in which it matters.
var trials = map[string]struct {
	rule Rule
	trial
}{
	"Anchor": {Anchor, trial{Config: with(hard, func(c *Config) { c.Slow = 0.1 })}},
	"Poll":   {Poll, trial{Config: hard, forgotten: 9 * second}},
	"SettleOnCancel": {SettleOnCancel, trial{sleep: 100 * millisecond, Config: with(calm, func(c *Config) {
		c.Cancel, c.Shared, c.Clients, c.Think = 0.3, 0.7, 4, 5*second
	})}},
	"SettleOnDowngrade": {SettleOnDowngrade, trial{sleep: 100 * millisecond, Config: with(calm, func(c *Config) {
		c.Downgrade, c.Shared, c.Clients, c.Think = 0.5, 0.7, 4, 5*second
	})}},
	"Watch": {Watch, trial{sleep: 1100 * millisecond, Config: with(calm, func(c *Config) {
		c.Clients, c.TTL, c.Think, c.CrashHolder, c.Cancel, c.Pass, c.Long = 8, second, 12*second, second, 0, 0, 0.6
	})}},
	// The step is as long as the message was on its way.
	"FreshID": {FreshID, trial{Config: with(calm, func(c *Config) {
		c.Length, c.TTL, c.Pass, c.Loss, c.StepBack, c.StepFrom, c.StepTo = 50*second, second, 0, 0.05, 6*second, 3500*millisecond, 3501*millisecond
		c.Late, c.SlowFrom, c.SlowTo = 0.3, 3450*millisecond, 3600*millisecond
	})}},
	// A request that was sent twice comes the second time when its grant has run
	// out, and the step is as long as the message of that was on its way.
	"Doubt": {Doubt, trial{Config: with(calm, func(c *Config) {
		c.Length, c.TTL, c.Pass, c.Slow, c.StepBack, c.StepFrom, c.StepTo = 50*second, second, 0, 0.2, 6*second, 3500*millisecond, 3501*millisecond
		c.Late, c.SlowFrom, c.SlowTo = 0.3, 3450*millisecond, 3600*millisecond
	})}},
	// The message takes longer than the step, but not too long for the lease.
	"NoLateGrant": {NoLateGrant, trial{Config: with(calm, func(c *Config) {
		c.Length, c.TTL, c.Pass, c.Shared, c.Loss, c.Long = 250*second, 10*second, 0, 0, 0.35, 0.5
		c.StepForward, c.StepFrom, c.StepTo = 8*second, 3800*millisecond, 3801*millisecond
		c.Late, c.SlowFrom, c.SlowTo = 0.4, 4850*millisecond, 4950*millisecond
	})}},
	"GiveBack": {GiveBack, trial{ghost: 100 * millisecond, Config: with(ghostly, func(c *Config) {
		c.Off, c.Clients, c.Think = Abandon, 6, 0
	})}},
	"Tombstone":     {Tombstone, trial{ghost: 100 * millisecond, Config: ghostly}},
	"Abandon":       {Abandon, trial{ghost: 100 * millisecond, Config: ghostly}},
	"ReadersToken":  {ReadersToken, trial{Config: hard}},
	"WithinElapsed": {WithinElapsed, trial{Config: with(hard, func(c *Config) { c.Pass, c.Wipe = 0.7, 10*second })}},
	"WithinLease": {WithinLease, trial{Config: with(hard, func(c *Config) {
		c.Pass, c.StepBack, c.Crash, c.CrashHolder = 0.7, 8*second, 0, 4*second
	})}},
	"CountFirst": {CountFirst, trial{Config: with(hard, func(c *Config) { c.Failover = 8 * second })}},
	// Who has not waited since the last failover does so when all is calm.
	"Follow": {Follow, trial{forgotten: second, Config: with(calm, func(c *Config) {
		c.Failover, c.Think, c.Settling = 5*second, 40*second, second
	})}},
	"Proof":        {Proof, trial{Config: with(hard, func(c *Config) { c.Forge, c.Replay = second/2, second/2 })}},
	"BreakByToken": {BreakByToken, trial{Config: with(hard, func(c *Config) { c.Break = 2 * second })}},
	"SettleOnBreak": {SettleOnBreak, trial{sleep: 100 * millisecond, Config: with(calm, func(c *Config) {
		c.Break, c.Long, c.Think = 2*second, 0.6, 5*second
	})}},
	"RaiseOnBreak": {RaiseOnBreak, trial{Config: with(hard, func(c *Config) { c.Break, c.Pass, c.Long = 2*second, 0.7, 0.5 })}},
	"TellOnRenewal": {TellOnRenewal, trial{broken: second + 100*millisecond, Config: with(calm, func(c *Config) {
		c.Break, c.Long = 2*second, 0.6
	})}},
	"ReportOnDowngrade": {ReportOnDowngrade, trial{Config: with(hard, func(c *Config) { c.Pass, c.Downgrade = 0.5, 0.3 })}},
}

// ghostly has requests that arrive long after their clients have gone on.
var ghostly = with(calm, func(c *Config) {
	c.TTL, c.Clients, c.Think, c.Cancel, c.Length, c.Settling = 2*second, 3, 3*second, 0.3, 40*second, 0
	c.Slow, c.SlowTo = 0.4, 15*second
})

// play plays n histories on all processors, or until as many have failed as are
// wanted. It returns the sum of their grants, and the failures.
func (tr trial) play(n, wanted int) (grants int64, failed []*World) {
	var mu sync.Mutex
	var seed, sum, failures atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := seed.Add(1); i <= int64(n) && failures.Load() < int64(wanted); i = seed.Add(1) {
				c := tr.Config
				c.Seed = uint64(i)
				w := Play(c)
				sum.Add(int64(w.Grants()))
				if tr.fails(w) {
					failures.Add(1)
					mu.Lock()
					failed = append(failed, w)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return sum.Load(), failed
}

// With every rule in force nothing goes wrong, whatever happens.
func TestAllRules(t *testing.T) {
	for name, tr := range trials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr.Off = 0
			grants, failed := tr.play(*histories, 3)
			t.Logf("%d histories, %d grants", *histories, grants)
			for _, w := range failed {
				t.Errorf("seed %d: asleep %d ms, ghost %d ms, forgotten %d ms, mistaken %d ms, %v",
					w.Seed, w.LongestSleep/millisecond, w.LongestGhost/millisecond, w.LongestForgotten/millisecond, w.LongestBroken/millisecond, w.Violations)
			}
		})
	}
}

// Without any one of them something does.
func TestEachRuleIsNeeded(t *testing.T) {
	for name, tr := range trials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr.Off |= tr.rule
			_, failed := tr.play(enough, 1)
			if len(failed) == 0 {
				t.Fatal("the model does not notice")
			}
			t.Logf("seed %d: %v", failed[0].Seed, failed[0].Violations)
		})
	}
}

// A seed decides everything that happens.
func TestSeed(t *testing.T) {
	c := with(hard, func(c *Config) { c.Off, c.Seed = Anchor, 3 })
	a, b := Play(c), Play(c)
	if a.Grants() != b.Grants() || a.LongestSleep != b.LongestSleep || len(a.Violations) != len(b.Violations) || a.count != b.count {
		t.Errorf("two histories from one seed: %d and %d events", a.count, b.count)
	}
}
