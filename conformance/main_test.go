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

// harnesses makes the harness of each backend. A further backend is one line.
var harnesses = map[string]func(testing.TB) conformance.Harness{
	"etcd":           etcdHarness,
	"etcd-old":       oldEtcdHarness,
	"file":           fileHarness,
	"memory":         memoryHarness,
	"pg":             pgHarness,
	"redis":          redisHarness,
	"redis-cluster":  clusterHarness,
	"redis-sentinel": sentinelHarness,
	"redis-user":     redisUserHarness,
	"redlock":        redlockHarness,
	"zk":             zkHarness,
}

// onlyByName are the targets that all does not stand for, and why.
var onlyByName = map[string]string{"redlock": "ten runs in a row are still to be shown"}

var backends = flag.String("backend", "memory", "backends to test: a name, a list with commas, or all; one of "+known())

func known() string { return strings.Join(slices.Sorted(maps.Keys(harnesses)), ", ") }

func TestMain(m *testing.M) {
	logging.Disable()                                      // the Redis client tells stderr of every broken connection
	if err := flag.Set("test.parallel", "8"); err != nil { // properties wait more than they work
		panic(err)
	}
	os.Exit(conformance.Main(m))
}

func TestConformance(t *testing.T) {
	for _, name := range chosen(t) {
		var report conformance.Report
		t.Run(name, func(t *testing.T) { report = conformance.Run(t, harnesses[name](t)) })
		fmt.Println(report)
		if want := allowedSkips(t, name); !slices.Equal(report.Skipped, want) {
			t.Errorf("%s: skipped %v, testdata/skips/%s.txt says %v", name, report.Skipped, name, want)
		}
	}
}

func BenchmarkBackend(b *testing.B) {
	for _, name := range chosen(b) {
		b.Run(name, func(b *testing.B) { conformance.Bench(b, harnesses[name](b)) })
	}
}

func chosen(t testing.TB) []string {
	names := strings.Split(*backends, ",")
	if *backends == "all" {
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(harnesses)), func(name string) bool {
			return onlyByName[name] != ""
		})
	}
	for _, name := range names {
		if harnesses[name] == nil {
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
