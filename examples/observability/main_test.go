package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/server"
)

// TestMetricsAreServed asks for the metrics until all that the workers cause are there.
func TestMetricsAreServed(t *testing.T) {
	for name, url := range map[string]string{
		"memory": "memory://",
		"redis":  "redis://" + server.Start(t, server.Redis{}).Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, url)
			p.await(
				`dlock_acquire_duration_seconds_count\{.*dlock_outcome="acquired"`, `dlock_acquire_duration_seconds_count\{.*dlock_outcome="held"`,
				`dlock_lease_duration_seconds_bucket\{`, `dlock_lease_active\{`, `dlock_acquire_waiters\{`,
				`dlock_hand_overs_total\{.*dlock_hand_over="local"`, `dlock_renewal_slack_bucket\{`,
				`dlock_renewals_total\{.*dlock_outcome="renewed".* [1-9]`, `dlock_lease_losses_total\{.*dlock_cause="expired".* 0`,
			)
			p.stop()
		})
	}
}

// TestRedisStopsAnswering does what the README says, and finds what it says.
func TestRedisStopsAnswering(t *testing.T) {
	redis := server.Start(t, server.Redis{})
	p := start(t, "redis://"+redis.Addr())
	p.await(`dlock_renewals_total\{.*dlock_outcome="renewed".* [1-9]`)
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	p.await(
		`dlock_lease_losses_total\{.*dlock_cause="expired".* [1-9]`, `dlock_renewals_total\{.*dlock_outcome="failed".* [1-9]`,
		`dlock_acquire_duration_seconds_count\{.*dlock_outcome="failed"`, `dlock_errors_total\{.*dlock_operation="renew"`,
	)
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	before := p.metric(`dlock_renewals_total\{.*dlock_outcome="renewed".* (\d+)`)
	p.until("no renewal after that", func() bool { return p.metric(`dlock_renewals_total\{.*dlock_outcome="renewed".* (\d+)`) != before })
	p.stop()
}

// A program is run of this command, which the test reads the metrics of.
type program struct {
	t    *testing.T
	url  string
	stop func() // ends it
}

func start(t *testing.T, url string) *program {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, url, listener) }()
	return &program{t, "http://" + listener.Addr().String() + "/metrics", func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}}
}

// await reads the metrics until there was a line that matches each pattern.
func (p *program) await(patterns ...string) {
	p.t.Helper()
	for _, pattern := range patterns {
		p.until("no "+pattern, func() bool { return p.metric("("+pattern+")") != "" })
	}
}

func (p *program) until(otherwise string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal(otherwise)
		}
	}
}

// metric returns what the group of the pattern matches in a line, or nothing.
func (p *program) metric(pattern string) string {
	reply, err := http.Get(p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	compiled := regexp.MustCompile(pattern)
	for line := range strings.Lines(string(text)) {
		if m := compiled.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			return m[1]
		}
	}
	return ""
}
