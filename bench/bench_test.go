package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/workload"
)

// must is what the workloads cannot do without.
var must = map[string][]workload.Metric{
	"W1":       {workload.Rate, workload.LockP50, workload.ClientCPU, workload.Allocs},
	"W2":       {workload.Rate, workload.LockP50},
	"W3":       {workload.Rate, workload.HandOvers, workload.Violations, workload.Starved},
	"W4":       {workload.Rate, workload.HandOvers, workload.Violations, workload.Starved},
	"W5":       {workload.IdleClient, workload.Goroutines, workload.HeapEach, workload.Lost},
	"W6":       {workload.IdleClient, workload.IdlePass, workload.Unfinished},
	"own keys": {workload.Rate},
	"clients":  {workload.HandOvers},
	"waiters":  {workload.IdlePass},
	"held":     {workload.HeldClient},
}

// Every contender goes through every workload for a moment, on real servers.
func TestEveryContender(t *testing.T) {
	s, err := startServers()
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := compare(t.Context(), s, quick, nil, io.Discard)
	if err := r.failures(); err != nil {
		t.Error(err)
	}
	seen, locked := make(map[string]map[string]bool), make(map[string]bool)
	for _, rec := range r.Records {
		if seen[rec.Workload] == nil {
			seen[rec.Workload] = make(map[string]bool)
		}
		seen[rec.Workload][rec.Contender] = true
		checkRecord(t, rec)
		locked[rec.Contender] = locked[rec.Contender] || rec.Figures[workload.Rate] > 0
	}
	for _, task := range append(quick.tasks(), quick.series()...) {
		for _, c := range contenders(s) {
			if task.X == 0 && c.in(task.ID) != seen[task.ID][c.Name] {
				t.Errorf("%s, %s: measured is %v", task.ID, c.Name, seen[task.ID][c.Name])
			}
		}
	}
	for _, c := range contenders(s) {
		if !locked[c.Name] {
			t.Errorf("%s has never locked", c.Name)
		}
	}
	twoRequests(t, r)
}

func checkRecord(t *testing.T, rec record) {
	t.Helper()
	for _, m := range must[rec.Workload] {
		if _, known := rec.Figures[m]; !known {
			t.Errorf("%s, %s: no %s", rec.Workload, rec.Contender, m)
		}
	}
	for m, v := range rec.Figures {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 && m != workload.Goroutines {
			t.Errorf("%s, %s: %s is %v", rec.Workload, rec.Contender, m, v)
		}
	}
}

// A floor is one request to lock and one to unlock: what the servers have
// counted is what the clients have sent.
func twoRequests(t *testing.T, r *report) {
	for _, name := range []string{setFloor, pipeFloor, etcdFloor, nodeFloor, advisoryFloor} {
		if f := r.figure("W1", name, workload.Requests); f.rounds > 0 && (f.mid < 1.8 || f.mid > 4) {
			t.Errorf("%s: %v requests", name, f.mid)
		}
	}
}

// What is in the files is what the results say.
func TestTextsAndChartsAreOfTheResults(t *testing.T) {
	files, err := render(".")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what go run . -render writes: %v", path, err)
		}
	}
}

func TestResultsTellNoPlaces(t *testing.T) {
	text, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	name, _ := os.Hostname()
	home, _ := os.UserHomeDir()
	for _, secret := range []string{name, home, os.TempDir(), "127.0.0.1"} {
		if len(secret) > 3 && strings.Contains(string(text), secret) {
			t.Errorf("the results hold %q", secret)
		}
	}
}

func rec(id, who string, round int, m workload.Metric, v float64) record {
	return record{Workload: id, Round: round, Result: workload.Result{Contender: who, Figures: map[workload.Metric]float64{m: v}}}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	r := &report{Records: []record{
		rec("W1", "a", 1, workload.Rate, 10), rec("W1", "b", 1, workload.Rate, 5),
		rec("W1", "a", 2, workload.Rate, 900), rec("W1", "b", 2, workload.Rate, 300),
		rec("W1", "a", 3, workload.Rate, 8), rec("W1", "b", 3, workload.Rate, 2),
		rec("W1", "a", 4, workload.Rate, 8), // b failed
		rec("W2", "b", 4, workload.Rate, 1),
	}}
	if got, want := r.ratio("W1", workload.Rate, "a", "b"), (spread{3, 2, 4, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	old := &report{Machine: "m", Versions: map[string]string{"a": "1"}, Sittings: []sitting{{[]string{"W1", "W2"}, time.Minute}}}
	old.Records = []record{rec("W1", "a", 1, workload.Rate, 1), rec("W2", "a", 1, workload.Rate, 2)}
	if err := old.save(path); err != nil {
		t.Fatal(err)
	}
	r := &report{Machine: "m", Versions: map[string]string{"a": "1"}, Sittings: []sitting{{[]string{"W2"}, time.Second}}}
	r.Records = []record{rec("W2", "a", 1, workload.Rate, 3)}
	r.keepOthers(path)
	if got := r.figure("W1", "a", workload.Rate).mid + r.figure("W2", "a", workload.Rate).mid; got != 4 || len(r.Records) != 2 {
		t.Errorf("%+v", r.Records)
	}
	if got := r.Took(); got != "1m1s, in 2 sittings" {
		t.Errorf("took %s", got)
	}
	other := &report{Machine: "another", Versions: r.Versions, Sittings: r.Sittings}
	if other.keepOthers(path); other.Records != nil {
		t.Error("figures of another machine were kept")
	}
}

func TestFailuresAreTold(t *testing.T) {
	r := &report{About: []about{{Name: "ours", Role: ours}, {Name: "theirs", Role: peer}}}
	r.Records = []record{rec("W4", "ours", 1, workload.Violations, 1), rec("W4", "theirs", 1, workload.Violations, 1)}
	if err := r.failures(); err == nil || strings.Contains(err.Error(), "theirs") {
		t.Errorf("got %v", err)
	}
	r.Records = []record{{Workload: "W1", Error: "no"}}
	if err := r.failures(); err == nil {
		t.Error("an error is not told")
	}
}

func TestTargetsAreOfContendersThereAre(t *testing.T) {
	r, err := load(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	names := func(a about) bool { return a.Name != "" }
	for _, target := range targets {
		if !names(r.of(target.who)) || target.by != "" && !names(r.of(target.by)) {
			t.Errorf("%+v names nobody", target)
		}
		if s := target.value(r); s.rounds == 0 && r.measured(target.workload) {
			t.Errorf("%s, %s: nothing is measured", target.workload, target.what)
		}
	}
}

func TestBetween(t *testing.T) {
	if got, err := between("a<x>old</x>b", "<x>", "</x>", "new"); err != nil || got != "a<x>\nnew</x>b" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := between("a</x>b<x>", "<x>", "</x>", "new"); err == nil {
		t.Error("no error without marks")
	}
}
