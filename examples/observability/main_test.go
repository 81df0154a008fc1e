package main

import (
	"context"
	"io"
	"net"
	"net/http"
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
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, url, listener) }()
			missing := []string{
				`dlock_acquire_duration_seconds_count{`, `dlock_outcome="acquired"`, `dlock_outcome="held"`,
				`dlock_lease_duration_seconds_bucket{`, `dlock_lease_active{`, `dlock_acquire_waiters{`, `dlock_hand_over="local"`,
			}
			for end := time.Now().Add(time.Minute); len(missing) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("no %q", missing)
				}
				text := get(t, "http://"+listener.Addr().String()+"/metrics")
				missing = absent(text, missing)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func absent(text string, parts []string) (out []string) {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			out = append(out, part)
		}
	}
	return out
}

func get(t *testing.T, url string) string {
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
