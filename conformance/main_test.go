package conformance_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/dlock-go/dlock/conformance"
)

// A target is a backend, or a way to run it.
type target struct {
	harness func(testing.TB) conformance.Harness
	alone   bool // has so many servers that nothing is tested beside it
}

// targets are what the suite tests. A further backend is one line.
var targets = map[string]target{
	"etcd":           {harness: etcdHarness},
	"etcd-old":       {harness: oldEtcdHarness},
	"file":           {harness: fileHarness},
	"memory":         {harness: memoryHarness},
	"pg":             {harness: pgHarness},
	"redis":          {harness: redisHarness},
	"redis-cluster":  {harness: clusterHarness, alone: true},
	"redis-sentinel": {harness: sentinelHarness, alone: true},
	"redis-user":     {harness: redisUserHarness},
	"redlock":        {harness: redlockHarness, alone: true},
	"zk":             {harness: zkHarness},
}

var backends = flag.String("backend", "memory", "backends to test: a name, a list with commas, or all; one of "+known())

// ttl is as short as a machine allows that is busy with the tests and at times
// gets no processor for seconds.
var ttl = flag.Duration("ttl", 4*time.Second, "how long the leases of most of the locks under test are")

func known() string { return strings.Join(slices.Sorted(maps.Keys(targets)), ", ") }

func TestMain(m *testing.M) {
	logging.Disable()                                       // the Redis client tells stderr of every broken connection
	if err := flag.Set("test.parallel", "16"); err != nil { // properties wait more than they work
		panic(err)
	}
	os.Exit(conformance.Main(m))
}

func TestConformance(t *testing.T) {
	names := chosen(t)
	if len(names) > 1 {
		testApart(t, names)
		return
	}
	name := names[0]
	var report conformance.Report
	t.Run(name, func(t *testing.T) { report = conformance.Run(t, targets[name].harness(t)) })
	fmt.Println(report)
	if want := allowedSkips(t, name); !slices.Equal(report.Skipped, want) {
		t.Errorf("%s: skipped %v, testdata/skips/%s.txt says %v", name, report.Skipped, name, want)
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

// allowedSkips reads the reviewed list of skipped properties of a backend.
func allowedSkips(t testing.TB, name string) []string {
	text, err := os.ReadFile("testdata/skips/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}
