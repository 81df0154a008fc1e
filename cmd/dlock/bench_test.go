//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/server"
	"github.com/dlock-go/dlock/internal/workload"
)

// brief makes dlock bench do everything, for a moment.
var brief = []string{"bench", "--time=200ms", "--goroutines=4", "--clients=3", "--held=5", "--waiting=4"}

func TestBenchTable(t *testing.T) {
	s := newShell(t)
	p := s.start(append(brief, "--backend=memory://", "--backend=file://"+s.locks())...)
	p.expect(0, "")
	text := p.out.String()
	if strings.Contains(text, "\r") {
		t.Error("progress is shown although the output is no terminal")
	}
	heads := strings.Fields(strings.Split(text, "\n")[0])
	if !slices.Equal(heads, []string{"1", "memory://", "2", "file://"}) {
		t.Errorf("the heads are %q", heads)
	}
	figures := regexp.MustCompile(`(?m)^  \S.*?( {3,}[\d.,]+){2}$`).FindAllString(text, -1)
	if len(figures) < 15 {
		t.Errorf("only %d lines have two figures:\n%s", len(figures), text)
	}
	s.expectNoLockFiles()
}

// expectNoLockFiles: files are made in a directory of their own, which goes.
func (s *shell) expectNoLockFiles() {
	s.t.Helper()
	if rest, err := os.ReadDir(s.locks()); err != nil || len(rest) > 0 {
		s.t.Errorf("left behind: %v, %v", rest, err)
	}
}

// The JSON is for programs: what is renamed breaks them.
func TestBenchJSON(t *testing.T) {
	s := newShell(t)
	p := s.start(append(brief, "--json")...) // the backend is that of the environment
	p.expect(0, "")
	d := json.NewDecoder(&p.out)
	d.DisallowUnknownFields()
	var r struct {
		Seconds  float64
		Backends []map[string]json.RawMessage
	}
	if err := d.Decode(&r); err != nil || r.Seconds != .2 || len(r.Backends) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	want := map[string][]workload.Metric{
		"free":       {"cycles_per_s", "lock_p50_us", "lock_p99_us", "client_cpu_us", "allocs_per_cycle"},
		"own":        {"cycles_per_s"},
		"goroutines": {"hand_overs_per_s", "violations", "starved"},
		"clients":    {"hand_overs_per_s", "pass_p50_us", "pass_p99_us", "violations"},
		"held":       {"idle_client_cpu_pct", "heap_bytes_each", "goroutines", "lost"},
		"waiting":    {"idle_client_cpu_pct", "pass_after_idle_us"},
	}
	for key, metrics := range want {
		var result workload.Result
		if err := json.Unmarshal(r.Backends[0][key], &result); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		for _, m := range metrics {
			if _, known := result.Figures[m]; !known {
				t.Errorf("%s has no %s", key, m)
			}
		}
		if bad := result.Figures[workload.Violations] + result.Figures[workload.Lost]; bad != 0 {
			t.Errorf("%s: %v violations or losses", key, bad)
		}
	}
	if len(r.Backends[0]) != len(want)+len([]string{"backend", "ttl_seconds"}) {
		t.Errorf("there is more than is known of: %v", r.Backends[0])
	}
	s.expectNoLockFiles()
}

// fetches finds what a browser would load from elsewhere.
var fetches = regexp.MustCompile(`(?i)(src|href|action|srcset)\s*=|url\(|@import|<script|<link|<iframe`)

func TestBenchPageNeedsNoOtherFile(t *testing.T) {
	s := newShell(t)
	page := filepath.Join(s.dir, "page.html")
	s.start(append(brief, "--html="+page, "--backend=memory://", "--backend=memory://")...).expect(0, "")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if found := fetches.FindAll(text, -1); found != nil {
		t.Errorf("the page loads something: %q", found)
	}
	outside := bytes.ReplaceAll(text, []byte(`xmlns="http://www.w3.org/2000/svg"`), nil)
	if bytes.Contains(outside, []byte("http")) {
		t.Error("the page names an address")
	}
	for _, want := range []string{"<svg", "Throughput", "latency", "Fairness", "Idle cost", "prefers-color-scheme", "</html>"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
	if bytes.Contains(text, []byte("ZgotmplZ")) {
		t.Error("a part of the page was refused as unsafe")
	}
}

// A password shows nowhere, and no lock is left held.
func TestBenchOnServer(t *testing.T) {
	const password = "s3cret"
	srv := server.Start(t, server.Redis{Args: []string{"--requirepass", password}})
	s := newShell(t)
	page := filepath.Join(s.dir, "page.html")
	url := "redis://:" + password + "@" + srv.Addr()
	for _, more := range []string{"--html=" + page, "--json"} {
		p := s.start(append(brief, "--backend="+url, more)...)
		p.expect(0, "")
		text, _ := os.ReadFile(page)
		if all := p.out.String() + p.err.String() + string(text); strings.Contains(all, password) || !strings.Contains(all, srv.Addr()) {
			t.Errorf("the password is shown, or the address is not: %s", all)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: srv.Addr(), Password: password})
	t.Cleanup(func() { _ = c.Close() })
	expectNoHolds(t, c)
	p := s.start(append(brief, "--backend="+url, "--time=1h")...)
	until(t, "a lock", func() bool { return len(holds(t, c)) > 0 })
	p.signal(syscall.SIGTERM)
	p.expect(exitSignal+int(syscall.SIGTERM), "")
	expectNoHolds(t, c)
}

func holds(t *testing.T, c *redis.Client) (held []string) {
	t.Helper()
	ctx := context.Background()
	keys, err := c.Keys(ctx, "dlock:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.HasSuffix(key, ":q") || c.HExists(ctx, key, "o").Val() {
			held = append(held, key)
		}
	}
	return held
}

func expectNoHolds(t *testing.T, c *redis.Client) {
	t.Helper()
	if held := holds(t, c); held != nil {
		t.Errorf("held or waited for still: %q", held)
	}
}

func TestBenchInterrupted(t *testing.T) {
	s := newShell(t)
	p := s.start(append(brief, "--time=1h")...)
	until(t, "lock file", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.locks(), "*", "*"))
		return len(files) > 0
	})
	p.signal(syscall.SIGINT)
	p.expect(exitSignal+int(syscall.SIGINT), "")
	s.expectNoLockFiles()
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for _, test := range []struct {
		code    int
		message string
		args    []string
	}{
		{exitUsage, "must be positive", []string{"--time=0s"}},
		{exitUsage, "must be positive", []string{"--clients=0"}},
		{exitUsage, "unknown command", []string{"more"}},
		{exitConfig, "", []string{"--backend=redis//:s3cret@host"}},
		{exitConfig, "no backend", []string{"--backend=mysql://user:s3cret@host"}},
		{exitUnavailable, "", []string{"--backend=memory://", "--backend=redis://user:s3cret@127.0.0.1:1"}},
	} {
		p := s.start(append(slices.Clone(brief), test.args...)...)
		if code := p.wait(); code != test.code {
			t.Errorf("%q exits with %d, want %d", test.args, code, test.code)
		}
		said := p.err.String() + p.out.String()
		if strings.Contains(said, "s3cret") || !strings.Contains(said, test.message) || strings.Count(said, "\n") != 1 {
			t.Errorf("%q says %q", test.args, said)
		}
	}
	s.expectNoLockFiles()
}
