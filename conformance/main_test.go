package conformance_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/dlock-go/dlock/conformance"
)

// A target is a backend, or a way to run it.
type target struct {
	harness func(testing.TB) conformance.Harness
	seeded  bool // shows that the suite notices the seeded bugs
}

// targets are what the suite tests. A further backend is one line.
var targets = map[string]target{
	"etcd":           {harness: etcdHarness},
	"etcd-old":       {harness: oldEtcdHarness},
	"file":           {harness: fileHarness, seeded: true},
	"memory":         {harness: memoryHarness, seeded: true},
	"pg":             {harness: pgHarness},
	"redis":          {harness: redisHarness, seeded: true},
	"redis-cluster":  {harness: clusterHarness},
	"redis-sentinel": {harness: sentinelHarness},
	"redis-user":     {harness: redisUserHarness},
	"redlock":        {harness: redlockHarness},
	"zk":             {harness: zkHarness},
}

// slowest are the targets that take longest, in the order in which they begin: what ends
// last shall be short.
var slowest = []string{"redlock", "zk", "redis-cluster", "etcd", "etcd-old", "redis-sentinel", "redis", "pg"}

var backends = flag.String("backend", "memory", "backends to test: a name, a list with commas, or all; one of "+known())

var ttl = flag.Duration("ttl", conformance.TTL(), "how long the leases of most of the locks under test are")

func known() string { return strings.Join(slices.Sorted(maps.Keys(targets)), ", ") }

func TestMain(m *testing.M) {
	if os.Getenv(stderrURL) == "" {
		logging.Disable() // the Redis client tells stderr of every broken connection
	}
	if err := flag.Set("test.parallel", "16"); err != nil { // properties wait more than they work
		panic(err)
	}
	os.Exit(conformance.Main(m))
}

func TestConformance(t *testing.T) {
	names := chosen(t)
	if len(names) > 1 {
		testInProcesses(t, names)
		return
	}
	name := names[0]
	var report conformance.Report
	t.Run(name, func(t *testing.T) { report = conformance.Run(t, targets[name].harness(t)) })
	fmt.Println(report)
	reviewed(t, "skips", name, report.Skipped)
	if everything() {
		reviewed(t, "na", name, report.NotApplicable)
	}
}

func BenchmarkBackend(b *testing.B) {
	for _, name := range chosen(b) {
		b.Run(name, func(b *testing.B) { conformance.Bench(b, targets[name].harness(b)) })
	}
}

func chosen(t testing.TB) []string {
	names := strings.Split(*backends, ",")
	if *backends == "all" {
		names = slices.Sorted(maps.Keys(targets))
	}
	for _, name := range names {
		if targets[name].harness == nil {
			t.Fatalf("no backend %q; there are %s", name, known())
		}
	}
	return names
}

// reviewed compares a list of properties of a backend with the one in testdata.
func reviewed(t testing.TB, kind, name string, got []string) {
	t.Helper()
	path := "testdata/" + kind + "/" + name + ".txt"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields(string(text)); !slices.Equal(got, want) {
		t.Errorf("%s: %s says %v, the report %v", name, path, want, got)
	}
}

// everything reports whether all properties are to run.
func everything() bool {
	run := flag.Lookup("test.run").Value.String()
	return (run == "" || run == everyTest) && flag.Lookup("test.skip").Value.String() == ""
}
