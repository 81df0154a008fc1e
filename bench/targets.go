package main

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/internal/chart"
	"github.com/dlock-go/dlock/internal/workload"
)

const (
	onRedis     = "dlock redis"
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
}

var targets = []target{
	{workload: "W1", who: onRedis, metric: workload.Rate, by: setFloor, limit: .95, what: "one goroutine, by SET NX + compare-and-delete"},
	{workload: "W1", who: onRedis, metric: workload.Requests, limit: 2.01, atMost: true, what: "commands a cycle"},
	{workload: "W2", who: onRedis, metric: workload.Rate, by: setFloor, limit: 1.7, what: "64 goroutines, by SET NX + compare-and-delete"},
	{workload: "W2", who: onRedis, metric: workload.Rate, by: rueidisID, limit: 1.3, what: "64 goroutines, by rueidislock"},
	{workload: "W3", who: onRedis, metric: workload.HandOvers, by: listFloor, limit: 15, what: "16 goroutines on one key, by a BLPOP token"},
	{workload: "W3", who: onRedis, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W4", who: onRedis, metric: workload.HandOvers, by: listFloor, limit: .85, what: "16 clients on one key, by a BLPOP token"},
	{workload: "W4", who: onRedis, metric: workload.HandOvers, by: rueidisID, limit: 4, what: "16 clients, by rueidislock"},
	{workload: "W4", who: onRedis, metric: workload.Requests, limit: 2.2, atMost: true, what: "commands a hand-over"},
	{workload: "W4", who: onRedis, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W5", who: onRedis, metric: workload.IdleRequest, by: setFloor, limit: 1.5, atMost: true, what: "renewals of 10,000 locks, by one script for 100"},
	{workload: "W5", who: onRedis, metric: workload.IdleClient, by: setFloor, limit: 1.5, atMost: true, what: "client CPU, by the same"},
	{workload: "W5", who: onRedis, metric: workload.Goroutines, limit: 16, atMost: true, what: "goroutines for 10,000 locks"},
	{workload: "W5", who: onRedis, metric: workload.HeapEach, limit: 600, atMost: true, what: "bytes a lock"},
	{workload: "W6", who: onRedis, metric: workload.IdleRequest, limit: 1, atMost: true, what: "commands a second for 500 who wait"},
	{workload: "W6", who: onRedis, metric: workload.IdlePass, of: "W4", ofMetric: workload.PassP50, limit: 2, atMost: true, what: "hand-over after idling, by that of W4"},
	{workload: "W4", who: onEtcd, metric: workload.HandOvers, by: etcdMutex, limit: 5, what: "16 clients, by concurrency.Mutex"},
	{workload: "W4", who: onEtcd, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W1", who: onZookeeper, metric: workload.Rate, by: zkLock, limit: 1.1, what: "one goroutine, by zk.Lock"},
	{workload: "W4", who: onZookeeper, metric: workload.HandOvers, by: zkLock, limit: 1.1, what: "16 clients, by zk.Lock"},
	{workload: "W4", who: onZookeeper, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
	{workload: "W2", who: onPostgres, metric: workload.Rate, by: advisoryFloor, limit: 1.5, what: "64 goroutines, by a connection each"},
	{workload: "W2", who: onPostgres, metric: workload.Connections, limit: 2, atMost: true, what: "connections"},
	{workload: "W4", who: onPostgres, metric: workload.HandOvers, by: advisoryFloor, limit: .8, what: "16 clients, by parked connections"},
	{workload: "W4", who: onPostgres, metric: workload.Fairness, limit: 1.1, atMost: true, what: "most by fewest"},
}

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
	return b.String()
}

// headline is the table of the project's README.
func (r *report) headline() string {
	var b strings.Builder
	b.WriteString("| | one goroutine, a free lock | 64 goroutines, a lock each | 16 goroutines, one lock | 16 clients, one lock | fewest : most |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|\n")
	for _, row := range []struct{ who, server string }{
		{onRedis, "redis"}, {onEtcd, "etcd"}, {onZookeeper, "zookeeper"}, {onPostgres, "postgres"},
	} {
		r.headlineRow(&b, "**"+row.who+"**", row.who)
		for _, other := range r.About {
			if other.Server == row.server && other.Role == peer && r.takesPart(other.Name) {
				r.headlineRow(&b, other.Name, other.Name)
			}
		}
	}
	if r.Remark != "" {
		fmt.Fprintf(&b, "\nOf this run: %s\n", r.Remark)
	}
	return b.String()
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
