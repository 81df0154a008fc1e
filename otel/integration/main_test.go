package integration

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/dlock-go/dlock"
	dlockotel "github.com/dlock-go/dlock/otel"
)

func TestMain(m *testing.M) {
	logging.Disable() // the Redis client tells stderr of every broken connection
	if url := os.Getenv(tracedURL); url != "" {
		number, _ := strconv.Atoi(os.Args[1])
		if err := runTraced(number, url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// meters returns hooks with metrics, and what reads these.
func meters(o ...dlockotel.Option) (dlock.Hooks, *metric.ManualReader) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	return dlockotel.Hooks(append(o, dlockotel.WithMeterProvider(provider))...), reader
}

// sums returns the value of each metric, for histograms the number of values, added up
// over all attributes but that of key.
func sums(t testing.TB, reader *metric.ManualReader, name string, key attribute.Key) map[string]int {
	t.Helper()
	var all metricdata.ResourceMetrics
	must(t, reader.Collect(context.Background(), &all))
	values := make(map[string]int)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					v, _ := p.Attributes.Value(key)
					values[v.AsString()] += int(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					v, _ := p.Attributes.Value(key)
					values[v.AsString()] += int(p.Count)
				}
			default:
				t.Fatalf("%s is a %T", name, data)
			}
		}
	}
	return values
}
