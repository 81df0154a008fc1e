//go:build mutants

package mutants

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// limit bounds one run of one test, on however slow a machine. Tests give up by
// themselves after half a minute.
const limit = 4 * time.Minute

// prompt is within what a test fails that need not wait for its own limit.
const prompt = 25 * time.Second

var only = flag.String("mutant", "", "only the mutants whose name matches this pattern")

func TestMutants(t *testing.T) {
	r := &runner{dir: t.TempDir(), built: make(map[string]func() (string, error)), passed: make(map[string]func() error)}
	mutants := all(t)
	pattern, found := regexp.MustCompile(*only), false
	ok := t.Run("seeded", func(t *testing.T) {
		for _, m := range mutants {
			if pattern.MatchString(m.name) {
				found = true
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					r.check(t, m)
				})
			}
		}
	})
	if !found {
		t.Fatalf("no mutant matches %q", *only)
	}
	if ok && *only == "" {
		must(t, os.WriteFile(filepath.Join(root, "docs/mutants.md"), []byte(table(mutants)), 0o644))
	}
}

// A runner builds and runs tests, those without a mutant once.
type runner struct {
	dir string

	mu     sync.Mutex
	built  map[string]func() (string, error) // test binaries, by package
	passed map[string]func() error           // by command
}

func (r *runner) check(t *testing.T, m *mutant) {
	must(t, r.baseline(m)())
	start := time.Now()
	binary, err := build(t.TempDir(), m.pkg, "-overlay="+overlay(t, m))
	must(t, err)
	out, took := fails(t, binary, m)
	if m.hangs == "" && took > prompt {
		out, took = fails(t, binary, m) // unless the machine was that slow
	}
	if m.hangs == "" && took > prompt {
		t.Fatalf("failed after %v only, and does not say that it hangs\n%s", took, out)
	}
	fmt.Printf("%-30s %-88s %s (%.0fs)\n", m.name, m.trap, m.test, time.Since(start).Seconds())
	t.Logf("%s", out)
}

// fails runs the test of m, which must fail, and returns how long that took.
func fails(t *testing.T, binary string, m *mutant) (string, time.Duration) {
	out, err := run(binary, m)
	must(t, err)
	took, ok := ended(out, "FAIL", m.test)
	if !ok {
		t.Fatalf("not caught: %s\n%s", m.trap, out)
	}
	return out, took
}

// baseline makes sure that the test of m passes without it.
func (r *runner) baseline(m *mutant) func() error {
	command := strings.Join(append([]string{m.pkg, m.test}, m.flags...), " ")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.built[m.pkg] == nil {
		r.built[m.pkg] = sync.OnceValues(func() (string, error) { return build(r.dir, m.pkg) })
	}
	if r.passed[command] == nil {
		built := r.built[m.pkg]
		r.passed[command] = sync.OnceValue(func() error { return passes(built, m) })
	}
	return r.passed[command]
}

func passes(built func() (string, error), m *mutant) error {
	binary, err := built()
	if err != nil {
		return err
	}
	out, err := run(binary, m)
	if err != nil {
		return err
	}
	if _, ok := ended(out, "PASS", m.test); !ok {
		return fmt.Errorf("%s does not pass without a mutant:\n%s", m.test, out)
	}
	return nil
}

// overlay writes the files as m has them, and returns where it is written which
// file each stands for.
func overlay(t *testing.T, m *mutant) string {
	replace := make(map[string]string)
	dir := t.TempDir()
	for i, e := range m.edits {
		text, err := e.apply()
		must(t, err)
		from, err := filepath.Abs(filepath.Join(root, e.file))
		must(t, err)
		to := filepath.Join(dir, fmt.Sprint(i, filepath.Ext(e.file)))
		must(t, os.WriteFile(to, []byte(text), 0o600))
		replace[from] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	path := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(path, list, 0o600))
	return path
}

// build makes the test binary of a package in dir.
func build(dir, pkg string, flags ...string) (string, error) {
	path := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".test")
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", path}, flags...)
	c := exec.Command("go", append(args, pkg)...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build of %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// run runs the test of m in a binary, and returns what that prints. How the
// process ends does not count.
func run(binary string, m *mutant) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := []string{"-test.v", "-test.count=1", "-test.timeout=0", "-test.run=" + exactly(m.test)}
	c := exec.CommandContext(ctx, binary, append(args, m.flags...)...)
	c.Dir = filepath.Join(root, m.pkg)
	c.WaitDelay = 5 * time.Second
	out, _ := c.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s has not ended within %v\n%s", m.test, limit, out)
	}
	return string(out), nil
}

// exactly is a pattern for one test and nothing else.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// ended reports whether a test ended so, and after how long.
func ended(out, how, test string) (took time.Duration, ok bool) {
	for line := range strings.Lines(out) {
		after, ok := strings.CutPrefix(strings.TrimSpace(line), "--- "+how+": "+test+" (")
		if took, err := time.ParseDuration(strings.TrimSuffix(after, ")")); ok && err == nil {
			return took, true
		}
	}
	return 0, false
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
