package dlockotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

type instruments struct {
	acquireDuration metric.Float64Histogram
	leaseDuration   metric.Float64Histogram
	slack           metric.Float64Histogram
	renewals        metric.Int64Counter
	losses          metric.Int64Counter
	handOvers       metric.Int64Counter
	errors          metric.Int64Counter
}

// Bounds of the buckets, in seconds and in parts of a lease. A lock is acquired within
// a round trip or after the holds of others, and held for anything from the time of a
// round trip to days. A renewal with more than half of the lease left is in time; below
// a tenth it is nearly lost.
var (
	acquireBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	leaseBounds   = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}
	slackBounds   = []float64{.05, .1, .2, .3, .4, .5, .6, .65, .7, .8, .9, 1}
)

// makeInstruments makes the instruments that t adds to, and has a collector observe the rest. If
// one cannot be made the global error handler is told, and the instrument counts nothing.
func (t *telemetry) makeInstruments(m metric.Meter) {
	t.acquireDuration = made(m.Float64Histogram("dlock.acquire.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls took that asked for a lock."),
		metric.WithExplicitBucketBoundaries(acquireBounds...)))
	t.leaseDuration = made(m.Float64Histogram("dlock.lease.duration", metric.WithUnit("s"),
		metric.WithDescription("How long leases lasted."),
		metric.WithExplicitBucketBoundaries(leaseBounds...)))
	t.losses = made(m.Int64Counter("dlock.lease.losses", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that were lost.")))
	t.slack = made(m.Float64Histogram("dlock.renewal.slack", metric.WithUnit("1"),
		metric.WithDescription("Part of the lease that was left when it was renewed."),
		metric.WithExplicitBucketBoundaries(slackBounds...)))
	t.renewals = made(m.Int64Counter("dlock.renewals", metric.WithUnit("{renewal}"),
		metric.WithDescription("Attempts to renew a hold.")))
	t.handOvers = made(m.Int64Counter("dlock.hand_overs", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that came from the holder before, within the client or by way of the server.")))
	t.errors = made(m.Int64Counter("dlock.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Calls, renewals and releases that failed.")))
	t.register(m)
}

// made returns the instrument, and gives err to the global error handler.
func made[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}
