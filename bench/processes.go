package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/server"
)

// acrossProcesses is what -only calls the comparison in which every contender is in
// processes of its own: that with libraries of Java.
const acrossProcesses = "processes"

const (
	processesFile  = "results/processes.json"
	processRounds  = 9
	processTime    = time.Second
	processWarming = 4 * time.Second // for the compiler of a JVM
	quickTurn      = 200 * time.Millisecond
	processClients = 16
)

// processCounts says in how many processes the clients are.
var processCounts = []int{1, 4}

// A library is a contender with processes of its own.
type library struct {
	name, server string
	kind         string // of jvm/Worker.java; empty: this library
}

const (
	dlockRedis     = "dlock redis"
	dlockZookeeper = "dlock zookeeper"
)

var libraries = []library{
	{dlockRedis, "redis", ""},
	{"Redisson RLock", "redis", "redisson"},
	{"Redisson RFairLock", "redis", "redisson-fair"},
	{"Redisson RFencedLock", "redis", "redisson-fenced"},
	{dlockZookeeper, "zookeeper", ""},
	{"Curator InterProcessMutex", "zookeeper", "curator"},
}

// A processesReport is what was found out across processes.
type processesReport struct {
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Remark   string            `json:"remark"`
	Records  []processesRecord `json:"records"`
}

// A processesRecord is one measurement.
type processesRecord struct {
	Library   string  `json:"library"`
	Processes int     `json:"processes"`
	Round     int     `json:"round"`
	HandOvers float64 `json:"hand_overs_a_second"`
	Requests  float64 `json:"requests_a_cycle"`
	Fairness  float64 `json:"most_by_fewest"` // 0: somebody got nothing
	Overlaps  int     `json:"overlaps"`
}

// runAcrossProcesses measures and writes. Without Java there is this library alone.
func runAcrossProcesses(ctx context.Context, hurry bool, remark string) error {
	rounds, turn, warming := processRounds, processTime, processWarming
	if hurry {
		rounds, turn, warming = 1, quickTurn, quickTurn
	}
	r := &processesReport{Machine: machine(), Versions: make(map[string]string), Remark: remark}
	all := libraries
	java, err := buildWorker(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "without libraries of Java:", err)
		all = slices.DeleteFunc(slices.Clone(all), func(l library) bool { return l.kind != "" })
	}
	if err := r.measure(ctx, all, java, rounds, turn, warming); err != nil || hurry {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(processesFile, append(text, '\n'), 0o644), write("."))
}

// buildWorker returns the class path of Worker.java, with Maven's help.
func buildWorker(ctx context.Context) (classPath string, err error) {
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", err
		}
	}
	if out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "jvm/pom.xml", "package").CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn: %w: %s", err, out)
	}
	return "jvm/target/classes:jvm/target/dependency/*", nil
}

func (r *processesReport) measure(ctx context.Context, all []library, java string, rounds int, turn, warming time.Duration) error {
	s := &servers{}
	redis, err := server.New(server.Redis{})
	if err != nil {
		return err
	}
	defer redis.Close()
	s.redis = []*server.Server{redis}
	if s.zookeeper, err = server.New(server.ZooKeeper{Config: []string{"tickTime=1000", "forceSync=yes"}}); err != nil {
		return err
	}
	defer s.zookeeper.Close()
	r.Versions["Redis"], r.Versions["ZooKeeper"] = redis.Version(), s.zookeeper.Version()
	if java != "" {
		r.Versions["Java"], r.Versions["Redisson"], r.Versions["Curator"] = javaVersions()
	}
	dir, err := os.MkdirTemp("", "dlock-processes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, n := range processCounts {
		if err := r.inProcesses(ctx, s, all, java, n, dir, rounds, turn, warming); err != nil {
			return err
		}
	}
	return nil
}

// inProcesses measures with the clients in n processes. All contenders are there all the time,
// and take turns.
func (r *processesReport) inProcesses(ctx context.Context, s *servers, all []library, java string, n int, dir string, rounds int, turn, warming time.Duration) error {
	var crews []*processCrew
	defer func() {
		for _, c := range crews {
			c.stop()
		}
	}()
	for i, l := range all {
		c, err := startCrew(ctx, l, s, java, n, filepath.Join(dir, fmt.Sprint(n, "-", i)))
		crews = append(crews, c)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		if _, err := c.turn(ctx, warming, "warm"); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	for round := range rounds {
		for _, c := range crews {
			rec, err := c.turn(ctx, turn, fmt.Sprint("round-", round))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			rec.Library, rec.Processes, rec.Round = c.name, n, round+1
			fmt.Fprintf(os.Stderr, "%d processes  round %d  %-28s %.0f hand-overs/s  %.2f requests  most/fewest %.2f  overlaps %d\n",
				n, rec.Round, rec.Library, rec.HandOvers, rec.Requests, rec.Fairness, rec.Overlaps)
			r.Records = append(r.Records, rec)
		}
	}
	return nil
}

// A processCrew is the processes of one contender.
type processCrew struct {
	library
	meter   meter
	workers []*processWorker
}

type processWorker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors bytes.Buffer
}

func startCrew(ctx context.Context, l library, s *servers, java string, n int, file string) (*processCrew, error) {
	c := &processCrew{library: l}
	addr, url := s.zookeeper.Addr(), "zk://"+s.zookeeper.Addr()+"/dlock?ensemble=false"
	c.meter = s.zookeeperMeter()
	if l.server == "redis" {
		addr = s.redis[0].Addr()
		url = "redis://" + addr
		c.meter = s.redisMeter(1, "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "ping")
	}
	if err := os.WriteFile(file, make([]byte, registerSize), 0o600); err != nil {
		return c, err
	}
	for i := range n {
		each := processClients / n
		args := []string{addr, strconv.Itoa(each), strconv.Itoa(i*each + 1), file}
		cmd := exec.CommandContext(ctx, os.Args[0], slices.Concat([]string{workerName, url, "-"}, args[1:])...)
		if l.kind != "" {
			cmd = exec.CommandContext(ctx, "java", slices.Concat([]string{"-Xmx256m", "-cp", java, "Worker", l.kind}, args)...)
		}
		w, err := startWorker(cmd)
		c.workers = append(c.workers, w)
		if err != nil {
			return c, err
		}
	}
	for _, w := range c.workers {
		if line, err := w.answer(); err != nil || line != "ready" {
			return c, fmt.Errorf("a worker says %q, %w", line, err)
		}
	}
	return c, nil
}

func startWorker(cmd *exec.Cmd) (w *processWorker, err error) {
	w = &processWorker{cmd: cmd}
	cmd.Stderr = &w.errors
	if w.in, err = cmd.StdinPipe(); err != nil {
		return w, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return w, err
	}
	w.out = bufio.NewReader(out)
	return w, cmd.Start()
}

func (w *processWorker) answer() (string, error) {
	line, err := w.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, w.errors.String())
	}
	return strings.TrimSpace(line), nil
}

// turn has all clients contend for one lock.
func (c *processCrew) turn(ctx context.Context, d time.Duration, name string) (rec processesRecord, err error) {
	before, err := c.meter.Read(ctx)
	if err != nil {
		return rec, err
	}
	began := time.Now()
	for _, w := range c.workers {
		if _, err := fmt.Fprintf(w.in, "%d processes-%d-%s-%s\n", d.Milliseconds(), len(c.workers), strings.ReplaceAll(c.name, " ", "-"), name); err != nil {
			return rec, err
		}
	}
	var handOvers int
	var cycles []int
	for _, w := range c.workers {
		line, err := w.answer()
		if err != nil {
			return rec, err
		}
		figures, err := numbers(line)
		if err != nil || len(figures) < 3 {
			return rec, fmt.Errorf("a worker says %q", line)
		}
		handOvers += figures[0]
		rec.Overlaps += figures[1]
		cycles = append(cycles, figures[2:]...)
	}
	took := time.Since(began)
	after, err := c.meter.Read(ctx)
	if err != nil {
		return rec, err
	}
	sum := 0
	for _, n := range cycles {
		sum += n
	}
	rec.HandOvers = float64(handOvers) / took.Seconds()
	rec.Requests = float64(after.Requests-before.Requests) / float64(max(sum, 1))
	if fewest := slices.Min(cycles); fewest > 0 {
		rec.Fairness = float64(slices.Max(cycles)) / float64(fewest)
	}
	return rec, nil
}

func numbers(line string) (all []int, err error) {
	for _, word := range strings.Fields(line) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func (c *processCrew) stop() {
	for _, w := range c.workers {
		if w.in != nil {
			_ = w.in.Close()
		}
		if w.cmd.Process != nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
	}
}

// javaVersions returns those of Java, Redisson and Curator.
func javaVersions() (java, redisson, curator string) {
	out, _ := exec.Command("java", "-version").CombinedOutput()
	_, rest, _ := strings.Cut(string(out), `"`)
	java, _, _ = strings.Cut(rest, `"`)
	version := func(artifact string) string {
		jars, _ := filepath.Glob("jvm/target/dependency/" + artifact + "-[0-9]*.jar")
		if len(jars) == 0 {
			return ""
		}
		return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), artifact+"-"), ".jar")
	}
	return java, version("redisson"), version("curator-recipes")
}

func loadProcesses(path string) (r *processesReport, err error) {
	r = new(processesReport)
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, r)
}

// table has a row for each contender in each layout.
func (r *processesReport) table() string {
	var b strings.Builder
	b.WriteString("| | 16 clients in | hand-overs/s | dlock by it | requests a cycle | most/fewest | overlaps |\n|---|---|---:|---:|---:|---:|---:|\n")
	for _, n := range processCounts {
		for _, l := range libraries {
			of := func(f func(processesRecord) float64) spread { return spreadOf(r.values(l.name, n, f)) }
			rate := of(func(rec processesRecord) float64 { return rec.HandOvers })
			if rate.rounds == 0 {
				continue
			}
			ourName := dlockRedis
			if l.server == "zookeeper" {
				ourName = dlockZookeeper
			}
			mine, theirs := r.values(ourName, n, handOversOf), r.values(l.name, n, handOversOf)
			var ratios []float64
			for i := range min(len(mine), len(theirs)) {
				ratios = append(ratios, mine[i]/theirs[i])
			}
			ratio, name := spreadOf(ratios).String(), l.name
			if l.kind == "" {
				ratio, name = "1", "**"+l.name+"**"
			}
			processes := "one process"
			if n > 1 {
				processes = fmt.Sprintf("%d processes", n)
			}
			overlaps := 0.0
			for _, v := range r.values(l.name, n, func(rec processesRecord) float64 { return float64(rec.Overlaps) }) {
				overlaps += v
			}
			fair := "∞"
			if f := of(func(rec processesRecord) float64 { return rec.Fairness }); f.low > 0 {
				fair = fmt.Sprintf("%.3g", f.mid)
			}
			fmt.Fprintf(&b, "| %s | %s | %.0f | %s | %.3g | %s | %.0f |\n", name, processes, rate.mid, ratio,
				of(func(rec processesRecord) float64 { return rec.Requests }).mid, fair, overlaps)
		}
	}
	var versions []string
	for _, name := range []string{"Java", "Redisson", "Curator", "Redis", "ZooKeeper"} {
		if v := r.Versions[name]; v != "" {
			versions = append(versions, name+" "+v)
		}
	}
	fmt.Fprintf(&b, "\n%s. %s\n", strings.Join(versions, ", "), cmp.Or(r.Remark, "Nothing else ran."))
	return b.String()
}

func handOversOf(rec processesRecord) float64 { return rec.HandOvers }

// values are those of a contender in a layout, by round.
func (r *processesReport) values(name string, n int, f func(processesRecord) float64) (all []float64) {
	for _, rec := range r.Records {
		if rec.Library == name && rec.Processes == n {
			all = append(all, f(rec))
		}
	}
	return all
}
