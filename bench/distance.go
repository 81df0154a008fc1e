package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultnet"
	"github.com/dlock-go/dlock/internal/server"
	"github.com/dlock-go/dlock/internal/workload"
)

// byDistance is what -only calls the comparison by distance: the contenders of one
// server at several round trips, which a proxy makes.
const byDistance = "distance"

const distanceFile = "results/distance.json"

// A ground is a server, or some, that can be put at a distance, and who compares there.
type ground struct {
	server     string
	servers    int
	start      func() (*server.Server, error)
	contenders func(addrs []string) []contender
}

// grounds are the rows of the tables. Each brings its contenders, of which the
// floors and peers stand in the targets.
var grounds = []ground{{
	server: "redis", servers: 1,
	start:      func() (*server.Server, error) { return server.New(server.Redis{}) },
	contenders: redisByAddress,
}, {
	server: "redlock", servers: redisNodes,
	start: func() (*server.Server, error) {
		s, err := server.New(server.Redis{})
		if err != nil {
			return nil, err
		}
		return s, takePart(s)
	},
	contenders: redlockByAddress,
}, {
	server: "etcd", servers: 1,
	start:      func() (*server.Server, error) { return server.New(server.Etcd{}) },
	contenders: etcdByAddress,
}, {
	server: "zookeeper", servers: 1,
	start: func() (*server.Server, error) { // with the bound of its own default: who waits for a third of a session asks once more
		return server.New(server.ZooKeeper{Config: []string{"maxSessionTimeout=40000"}})
	},
	contenders: zookeeperByAddress,
}}

// at is this library on a server, in the workloads of the given ids.
func at(name, url string, ids ...string) contender {
	return contender{
		Contender: workload.DLock(name, nil, func(ctx context.Context, o dlock.Options) (*dlock.Client, error) {
			return dlock.Open(ctx, url, &o)
		}),
		Role: ours, Only: ids,
	}
}

func etcdByAddress(addrs []string) []contender {
	addr := addrs[0]
	return []contender{
		at(onEtcd, "etcd://"+addr, alone, handed),
		{Contender: workload.Contender{Name: etcdFloor, Open: openTxn(addr)}, Role: floor, Only: []string{alone}},
		{Contender: workload.Contender{Name: etcdMutex, Open: openMutex(addr)}, Role: peer, Only: []string{alone, handed}},
	}
}

func zookeeperByAddress(addrs []string) []contender {
	addr := addrs[0]
	return []contender{
		at(onZookeeper, "zk://"+addr+"/dlock?ensemble=false", alone, handed),
		{Contender: workload.Contender{Name: nodeFloor, Open: openNodes(addr)}, Role: floor, Only: []string{alone}},
		{Contender: workload.Contender{Name: zkLock, Open: openZkLock(addr)}, Role: peer, Only: []string{alone, handed}},
	}
}

func redisByAddress(addrs []string) []contender {
	addr := addrs[0]
	return []contender{
		at(onRedis, "redis://"+addr),
		{Contender: workload.Contender{Name: setFloor, Open: openSet(addr)}, Role: floor, Only: []string{alone, apart}},
		{Contender: workload.Contender{Name: listFloor, Open: openList(addr)}, Role: floor, Only: []string{handed}},
		{Contender: workload.Contender{Name: rueidisID, Open: openRueidis(addr, time.Second)}, Role: peer, Only: []string{handed}},
	}
}

func redlockByAddress(addrs []string) []contender {
	return []contender{
		at(onRedlock, "redlock://"+strings.Join(addrs, ","), alone),
		{Contender: workload.Contender{Name: oneOf3, Open: openSet(addrs[0])}, Role: floor, Only: []string{alone}},
		{Contender: workload.Contender{Name: redsyncOn3, Open: openRedsync(addrs)}, Role: peer, Only: []string{alone}},
	}
}

// The workloads at a distance.
const (
	alone  = "one goroutine, a free lock"
	apart  = "64 goroutines, a lock each"
	handed = "16 clients, one lock"
)

const oneOf3 = setFloor + ", one of the nodes"

// distances are round trips.
var distances = []time.Duration{0, time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond}

const (
	nearRounds, nearTime = 11, 250 * time.Millisecond // where the machine's mood matters
	farRounds, farCycles = 3, 20
)

// isFar says that the distance takes most of the time.
func isFar(trip time.Duration) bool { return trip >= 10*time.Millisecond }

// A distanceTarget is what is asked on one server, on loopback and from the first
// distance on.
type distanceTarget struct {
	what     string
	metric   workload.Metric
	who, by  string
	loopback float64 // 0: nothing is asked there
	afar     float64
	request  bool // it is compared with one request of two, with a free lock
}

var distanceTargets = []distanceTarget{
	{alone, workload.Rate, onRedis, setFloor, .9, .98, false},
	{apart, workload.Rate, onRedis, setFloor, 1.6, 1.2, false},
	{handed, workload.HandOvers, onRedis, listFloor, .4, .9, false},
	{handed, workload.HandOvers, onRedis, rueidisID, 0, 2.5, false},
	{alone, workload.Rate, onRedlock, oneOf3, 0, .9, false},
	{alone, workload.Rate, onRedlock, redsyncOn3, 1, 1, false},
	{alone, workload.Rate, onEtcd, etcdFloor, .8, .95, false},
	{alone, workload.Rate, onEtcd, etcdMutex, 1, 1, false},
	{handed, workload.HandOvers, onEtcd, etcdFloor, 0, .8, true},
	{handed, workload.HandOvers, onEtcd, etcdMutex, 1, 1, false},
	{alone, workload.Rate, onZookeeper, nodeFloor, .8, .95, false},
	{alone, workload.Rate, onZookeeper, zkLock, 1, 1, false},
	{handed, workload.HandOvers, onZookeeper, nodeFloor, 0, .67, true},
	{handed, workload.HandOvers, onZookeeper, zkLock, 1, 1, false},
}

// A distanceReport is what was found out by distance.
type distanceReport struct {
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Remark   string            `json:"remark"` // what readers have to know of this run
	Records  []distanceRecord  `json:"records"`
}

// A distanceRecord is one measurement.
type distanceRecord struct {
	RoundTrip time.Duration `json:"round_trip_ns"`
	record
}

// compareByDistance measures at the given round trips. In each round the contenders
// of a workload take turns.
func compareByDistance(ctx context.Context, grounds []ground, trips []time.Duration, z size, log io.Writer) (r *distanceReport, err error) {
	r = &distanceReport{Machine: machine(), Versions: make(map[string]string)}
	for _, g := range grounds {
		if err := r.on(ctx, g, trips, z, log); err != nil {
			return r, err
		}
	}
	return r, ctx.Err()
}

// on measures on one ground at the given round trips.
func (r *distanceReport) on(ctx context.Context, g ground, trips []time.Duration, z size, log io.Writer) (err error) {
	var addrs []string
	for range g.servers {
		s, e := g.start()
		if e != nil {
			return e
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		r.Versions[g.server], addrs = s.Version(), append(addrs, s.Addr())
	}
	moduleVersions(r.Versions)
	for _, trip := range trips {
		err = errors.Join(err, r.at(ctx, g, addrs, trip, z, log))
	}
	return err
}

// at measures on one ground at one distance. On loopback there is no proxy.
func (r *distanceReport) at(ctx context.Context, g ground, addrs []string, trip time.Duration, z size, log io.Writer) error {
	if trip > 0 {
		far := make([]string, len(addrs))
		for i, addr := range addrs {
			p, err := faultnet.Listen(addr)
			if err != nil {
				return err
			}
			defer p.Close()
			p.Delay(faultnet.BothWays, trip/2, 0)
			far[i] = p.Addr()
		}
		addrs = far
	}
	all := g.contenders(addrs)
	for round := 1; round <= z.roundsAt(trip); round++ {
		for _, t := range z.byDistance(trip) {
			for _, c := range all {
				if !c.in(t.ID) || ctx.Err() != nil {
					continue
				}
				rec := distanceRecord{trip, t.measure(ctx, c, round)}
				rec.Locks, rec.Passes, rec.Shares = nil, nil, nil // ratios need the figures alone
				fmt.Fprintf(log, "%-6v ", trip)
				rec.print(log)
				r.Records = append(r.Records, rec)
			}
		}
	}
	return nil
}

func (s size) roundsAt(trip time.Duration) int {
	switch {
	case s.Cycles > 0:
		return s.Rounds
	case isFar(trip):
		return farRounds
	}
	return nearRounds
}

// byDistance are the workloads at one distance. Far away so many cycles are measured
// as take long enough, because in a short time there are but a few.
func (s size) byDistance(trip time.Duration) []task {
	far := func(cycles int64) size {
		z := s
		z.Time = nearTime
		if isFar(trip) && z.Cycles == 0 {
			z.Cycles = cycles
		}
		return z
	}
	one, many := far(farCycles), far(farCycles*int64(s.Goroutines))
	return []task{
		{ID: alone, Run: one.ownKeys(1, s.Time)},
		{ID: apart, Run: many.ownKeys(s.Goroutines, s.Time)},
		{ID: handed, Run: one.oneKey(s.Contend, s.Contend)},
	}
}

// named returns those of all of which only has the name, such as distance/30ms, or all
// if it has none.
func named[T any](all []T, only []string, name func(T) string) []T {
	some := slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !slices.Contains(only, byDistance+"/"+name(one)) })
	if len(some) == 0 {
		return all
	}
	return some
}

// runByDistance measures at the round trips and on the servers that only names, such as
// distance/30ms and distance/etcd. Results of others stay as they are.
func runByDistance(ctx context.Context, z size, only []string, remark string) error {
	trips := named(distances, only, time.Duration.String)
	r, err := compareByDistance(ctx, named(grounds, only, func(g ground) string { return g.server }), trips, z, os.Stderr)
	fmt.Fprintln(os.Stderr, "\n"+r.table())
	if err != nil || z.Cycles > 0 {
		return err
	}
	old, err := loadDistances(distanceFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := r.Records
	for _, rec := range old.Records {
		again := func(other distanceRecord) bool {
			return other.RoundTrip == rec.RoundTrip && other.Contender == rec.Contender
		}
		if !slices.ContainsFunc(fresh, again) {
			r.Records = append(r.Records, rec)
		}
	}
	for name, version := range old.Versions {
		r.Versions[name] = cmp.Or(r.Versions[name], version)
	}
	r.Remark = cmp.Or(remark, old.Remark)
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(distanceFile, append(text, '\n'), 0o644), write("."))
}

func loadDistances(path string) (r distanceReport, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// table has a row for each target and a column for each distance.
func (r *distanceReport) table() string {
	var b strings.Builder
	b.WriteString("| | by |")
	for _, d := range distances {
		fmt.Fprintf(&b, " %s |", roundTripName(d))
	}
	b.WriteString(" target |\n|---|---|" + strings.Repeat("---:|", len(distances)) + "---|\n")
	for _, t := range distanceTargets {
		by := t.by
		if t.request {
			by = "one request of " + by
		}
		fmt.Fprintf(&b, "| %s, %s | %s |", t.who, t.what, by)
		for _, d := range distances {
			b.WriteString(" " + t.cell(r, d) + " |")
		}
		fmt.Fprintf(&b, " %s |\n", t)
	}
	if r.Remark != "" {
		fmt.Fprintf(&b, "\nOf this run: %s\n", r.Remark)
	}
	return b.String()
}

func roundTripName(d time.Duration) string {
	if d == 0 {
		return "loopback"
	}
	return d.String()
}

func (t distanceTarget) String() string {
	text := fmt.Sprintf("≥ %v from 1 ms on", t.afar)
	if t.loopback > 0 {
		text += fmt.Sprintf(", ≥ %v on loopback", t.loopback)
	}
	return text
}

// cell is the ratio at one distance, strong where it misses its target.
func (t distanceTarget) cell(r *distanceReport, d time.Duration) string {
	part := new(report)
	for _, rec := range r.Records {
		if rec.RoundTrip != d {
			continue
		}
		part.Records = append(part.Records, rec.record)
		if t.request && rec.Workload == alone && rec.Contender == t.by {
			one := rec.record
			one.Workload, one.Figures = t.what, map[workload.Metric]float64{t.metric: 2 * one.Figures[workload.Rate]}
			part.Records = append(part.Records, one)
		}
	}
	s, limit := part.ratio(t.what, t.metric, t.who, t.by), t.afar
	if d == 0 {
		limit = t.loopback
	}
	switch {
	case s.rounds == 0:
		return "not measured"
	case s.mid < limit:
		return "**" + s.String() + "**"
	}
	return s.String()
}
