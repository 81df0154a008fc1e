package main

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/workload"
)

const (
	onRedis     = "dlock redis"
	onRedlock   = "dlock redlock, 3 nodes"
	onEtcd      = "dlock etcd"
	onZookeeper = "dlock zookeeper"
	onPostgres  = "dlock postgres"
)

// A target is what the design asks of a backend.
type target struct {
	workload string
	who      string
	metric   workload.Metric
	by       string // contender to divide by in each round; empty for the figure itself
	of       string // workload to divide by the figure of, with its metric
	ofMetric workload.Metric
	limit    float64
	atMost   bool
	what     string
	why      string // of a miss
}

var targets = []target{
	{workload: "W1", who: onRedis, metric: workload.Requests, limit: 2.01, atMost: true, what: "commands a cycle"},
	{workload: "W2", who: onRedis, metric: workload.Rate, by: rueidisID, limit: 1.3, what: "64 goroutines, by rueidislock", why: scripted},
	{workload: "W3", who: onRedis, metric: workload.HandOvers, by: listFloor, limit: 15, what: "16 goroutines on one key, by a BLPOP token"},
	{workload: "W3", who: onRedis, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W4", who: onRedis, metric: workload.Requests, limit: 2.2, atMost: true, what: "commands a hand-over"},
	{workload: "W4", who: onRedis, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W5", who: onRedis, metric: workload.IdleRequest, by: setFloor, limit: 1.5, atMost: true, what: "renewals of 10,000 locks, by one script for 100", why: paced},
	{workload: "W5", who: onRedis, metric: workload.IdleClient, by: setFloor, limit: 1.5, atMost: true, what: "client CPU, by the same", why: minded},
	{workload: "W5", who: onRedis, metric: workload.Goroutines, limit: 16, atMost: true, what: "goroutines for 10,000 locks"},
	{workload: "W5", who: onRedis, metric: workload.HeapEach, limit: 600, atMost: true, what: "bytes a lock", why: remembered},
	{workload: "W6", who: onRedis, metric: workload.IdleRequest, limit: 1, atMost: true, what: "commands a second for 500 who wait"},
	{workload: "W6", who: onRedis, metric: workload.IdlePass, of: "W4", ofMetric: workload.PassP50, limit: 2, atMost: true, what: "hand-over after idling, by that of W4", why: asleep},
	{workload: "W1", who: onRedlock, metric: workload.Rate, by: redsyncOn3, limit: 1.3, what: "one goroutine, by redsync on the same nodes", why: voted},
	{workload: "W4", who: onEtcd, metric: workload.HandOvers, by: etcdMutex, limit: 5, what: "16 clients, by concurrency.Mutex", why: committed},
	{workload: "W4", who: onEtcd, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W1", who: onZookeeper, metric: workload.Rate, by: zkLock, limit: 1.1, what: "one goroutine, by zk.Lock", why: unsteady},
	{workload: "W4", who: onZookeeper, metric: workload.HandOvers, by: zkLock, limit: 1.1, what: "16 clients, by zk.Lock"},
	{workload: "W4", who: onZookeeper, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W2", who: onPostgres, metric: workload.Rate, by: advisoryFloor, limit: 1.5, what: "64 goroutines, by a connection each"},
	{workload: "W2", who: onPostgres, metric: workload.Connections, limit: 2, atMost: true, what: "connections"},
	{workload: "W4", who: onPostgres, metric: workload.HandOvers, by: advisoryFloor, limit: .8, what: "16 clients, by parked connections", why: numbered},
	{workload: "W4", who: onPostgres, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
}

// Why targets are missed.
const (
	scripted = "To take a lock the server looks at its clock, at who has it and at the last token, and writes " +
		"the next; to give it back it looks at who has it and who waits. These are two scripts of five commands, where the " +
		"floor has one command and one script of two. In W2 several locks share a script and its look at the clock."
	paced = "Renewals that are due begin 64 at a time, the earliest deadline first, so that a server does not get a " +
		"client's whole stock at once. The floor sends 100 in one script."
	voted = "Each node is a backend of its own to the client, with a pipeline and limits, and grants by a script where " +
		"redsync sends SET NX. Client and servers share two processors, and the next lock waits for the slowest of the three."
	minded = "The scripts are those of the floor. But each lock has a deadline of its own, which its answer moves " +
		"and whose passing is told in time; the floor has none to keep. The floor and the memory backend, which sends nothing, together use more than the target."
	remembered = "A lock that is held is a lease for its owner, a hold with its deadline, an entry by name for those " +
		"who come to wait, the record of the backend, and a finalizer that tells of a lease that was forgotten."
	asleep    = "Processors that sleep take long to wake up on this machine: see the floor in the same two tables."
	committed = "A hand-over is two commits of etcd, one after the other, and the Mutex needs no more. It loses by a timer " +
		"of 100 ms, after which etcd serves its watches, and the more wait the less often it is in the way."
	unsteady = "From one turn to the next the machine may become twice as fast or slow. Where the two take " +
		"turns lock by lock it is 1.25 to 1.28 (`go test -run '^$' -bench Free ./backend/zk`)."
	numbered = "A grant draws a token from a sequence, and a release looks whether somebody waits beside the queue. " +
		"The floor has no token, and cannot wait without a connection."
)

// value is what was measured for a target.
func (t target) value(r *report) spread {
	switch {
	case t.by != "":
		return r.ratio(t.workload, t.metric, t.who, t.by)
	case t.of != "":
		s, by := r.figure(t.workload, t.who, t.metric), r.figure(t.of, t.who, t.ofMetric).mid
		return spread{s.mid / by, s.low / by, s.high / by, s.rounds}
	}
	return r.figure(t.workload, t.who, t.metric)
}

// met compares the middle of the rounds.
func (t target) met(s spread) bool {
	if t.atMost {
		return s.rounds > 0 && s.mid <= t.limit
	}
	return s.rounds > 0 && s.mid >= t.limit
}

func (r *report) targetTable() string {
	var b strings.Builder
	b.WriteString("| | | what | target | measured | |\n|---|---|---|---:|---:|---|\n")
	for _, t := range targets {
		s, sign, verdict := t.value(r), "≥", "**missed**"
		if t.atMost {
			sign = "≤"
		}
		switch {
		case s.rounds == 0:
			verdict = "not measured"
		case t.met(s):
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s %s | %s | %s |\n", t.workload, t.who, t.what, sign, chart.Number(t.limit), s, verdict)
	}
	return b.String() + r.reasons()
}

// reasons says why targets were missed, with what a cycle costs the CPU.
func (r *report) reasons() string {
	var order []string
	missed := make(map[string][]string)
	for _, t := range targets {
		s := t.value(r)
		if t.why == "" || s.rounds == 0 || t.met(s) {
			continue
		}
		if missed[t.why] == nil {
			order = append(order, t.why)
		}
		missed[t.why] = append(missed[t.why], t.workload+", "+t.what+r.costs(t))
	}
	if len(order) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nWhy some are missed. The profiles are in [profiles.md](profiles.md).\n\n")
	for _, why := range order {
		fmt.Fprintf(&b, "- *%s*. %s\n", strings.Join(missed[why], "; "), why)
	}
	return b.String()
}

// costs is the CPU time of a cycle, beside that of the other.
func (r *report) costs(t target) string {
	if t.by == "" || r.figure(t.workload, t.who, workload.ClientCPU).rounds == 0 {
		return ""
	}
	cpu := func(who string) string {
		return r.cell(t.workload, who, workload.ClientCPU) + " + " + r.cell(t.workload, who, workload.ServerCPU)
	}
	return fmt.Sprintf(" (client + server: %s µs a cycle, the other %s)", cpu(t.who), cpu(t.by))
}

// headline is the table of the project's README.
func (r *report) headline() string {
	var b strings.Builder
	b.WriteString("| | one goroutine, a free lock | 64 goroutines, a lock each | 16 goroutines, one lock | 16 clients, one lock | fewest : most |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|\n")
	for _, who := range []string{onRedis, onRedlock, onEtcd, onZookeeper, onPostgres} {
		r.headlineRow(&b, "**"+who+"**", who)
		for _, other := range r.About {
			if other.Role == peer && likened(other) == who && r.takesPart(other.Name) {
				r.headlineRow(&b, other.Name, other.Name)
			}
		}
	}
	if r.Remark != "" {
		fmt.Fprintf(&b, "\nOf this run: %s\n", r.Remark)
	}
	return b.String()
}

// likened returns who of this library stands above another in the headline.
func likened(other about) string {
	if other.Name == redsyncOn3 {
		return onRedlock
	}
	return map[string]string{"redis": onRedis, "etcd": onEtcd, "zookeeper": onZookeeper, "postgres": onPostgres}[other.Server]
}

// takesPart says whether somebody is in all the columns of the headline.
func (r *report) takesPart(name string) bool {
	return r.figure("W1", name, workload.Rate).rounds > 0 && r.figure("W4", name, workload.HandOvers).rounds > 0
}

func (r *report) headlineRow(b *strings.Builder, title, name string) {
	fair := "a waiter got none"
	if f := r.figure("W4", name, workload.Fairness); f.rounds > 0 {
		fair = "1 : " + chart.Number(f.mid)
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", title,
		r.cell("W1", name, workload.Rate), r.cell("W2", name, workload.Rate),
		r.cell("W3", name, workload.HandOvers), r.cell("W4", name, workload.HandOvers), fair)
}
