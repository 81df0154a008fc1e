//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/dlock-go/dlock/internal/server"
)

const operatingPage = "../../docs/operating.md"

// TestOperating runs each command of docs/operating.md, and compares what it prints with
// what the page says. Comments of the page that begin with do and wait are run as well:
// a wait until it succeeds.
func TestOperating(t *testing.T) {
	text, err := os.ReadFile(operatingPage)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitAfter(string(text), "\n## ")
	t.Run("situations", func(t *testing.T) {
		for i, part := range parts[1:] {
			title, _, _ := strings.Cut(part, "\n")
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				got := newTypist(t).play(part)
				if got != part && !*updatePages {
					t.Errorf("the page says\n%s\nand it is\n%s", part, got)
				}
				parts[i+1] = got
			})
		}
	})
	if *updatePages {
		if err := os.WriteFile(operatingPage, []byte(strings.Join(parts, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// endOfOutput is what the shell prints after each command, with its exit code.
const endOfOutput = "--end-of-output--"

// A typist types commands into a shell, on a machine with dlock and a server.
type typist struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func newTypist(t *testing.T) *typist {
	redis := server.Start(t, server.Redis{Args: []string{"--save", "", "--maxmemory-policy", "noeviction"}})
	s := newShell(t)
	c := exec.Command("bash", "--noprofile", "--norc")
	c.Dir = s.dir
	c.Env = append(os.Environ(), "DLOCK_URL=redis://"+redis.Addr(), "PATH="+s.dir+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "GORACE=atexit_sleep_ms=0")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // with all that was started
		_ = c.Wait()
	})
	return &typist{t, in, bufio.NewScanner(out)}
}

var hidden = regexp.MustCompile(`^<!-- (do|wait): (.*) -->$`)

// play runs a part of the page, and returns it with what the commands have printed.
func (m *typist) play(part string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(part) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch h := hidden.FindStringSubmatch(strings.TrimSpace(line)); {
		case h != nil && h[1] == "do":
			m.run(h[2])
		case h != nil:
			until(m.t, h[2], func() bool { _, ok := m.run(h[2]); return ok })
		case strings.HasPrefix(line, "```"):
			inside = line == "```console\n"
		case inside && isCommand:
			out, _ := m.run(strings.TrimSpace(command))
			b.WriteString(line + shorten(out))
			continue
		case inside:
			continue // what was printed when the page was written
		}
		b.WriteString(line)
	}
	return b.String()
}

// run runs one command, and reports what it has printed and whether it succeeded.
func (m *typist) run(command string) (out string, ok bool) {
	m.t.Helper()
	if _, err := fmt.Fprintf(m.in, "%s\n(status=$?; printf '%%s %%s\\n' %s $status; exit $status)\n", command, endOfOutput); err != nil {
		m.t.Fatal(err)
	}
	stuck := time.AfterFunc(limit, func() { panic("no end of " + command) })
	defer stuck.Stop()
	var b strings.Builder
	for m.out.Scan() {
		if code, found := strings.CutPrefix(m.out.Text(), endOfOutput+" "); found {
			return b.String(), code == "0"
		}
		b.WriteString(m.out.Text() + "\n")
	}
	m.t.Fatalf("the shell ended at %q: %s", command, b.String())
	return "", false
}

// What differs from run to run, and what the page has instead.
var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`127\.0\.0\.1:[0-9]{4,5}`), "127.0.0.1:6379"},
	{regexp.MustCompile(`\b[^\s]+, process [0-9]+`), "host7, process 4711"},
	{regexp.MustCompile(`\b[0-9]{16}\b`), "1795480184077769"},
	{regexp.MustCompile(`(exclusive|shared)( +host7, process 4711) +[0-9A-Za-z_-]{8} `), "$1$2  f1c0a7e2  "},
	{regexp.MustCompile(`\b[0-9.]+(ms|µs)`), "0.1ms"},
	{regexp.MustCompile(`\b[0-9]+ of [0-9]+ are in use`), "2 of 10000 are in use"},
	{regexp.MustCompile(`\b([0-9]+h)?([0-9]+m)?[0-9]+(\.[0-9]+)?s\b`), "9s"},
	{regexp.MustCompile(`([Vv]ersion|Redis) [0-9]+\.[0-9]+\.[0-9]+\b`), "$1 7.0.15"},
	{regexp.MustCompile(`[0-9]+(\.[0-9]+)? (MiB|GiB|KiB|MB|GB|kB)`), "1 MiB"},
}

// shorten replaces what differs from run to run, and sets the columns anew.
func shorten(out string) string {
	for _, v := range volatile {
		out = v.pattern.ReplaceAllString(out, v.instead)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(table, columns.ReplaceAllString(out, "\t"))
	_ = table.Flush()
	return b.String()
}

var columns = regexp.MustCompile(` {2,}`)
