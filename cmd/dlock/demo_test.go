//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A line is one of the table that dlock demo prints.
type line struct{ sold, oversold, fewest, most int }

func TestDemo(t *testing.T) {
	s := newDemoShell(t)
	p := s.start("demo")
	p.expect(0, "")
	without, with := tableLine(t, p, "without lock"), tableLine(t, p, "with lock")
	const stock, workers = 2000, 4
	if without.sold < stock || without.oversold != without.sold-stock || without.oversold <= 0 {
		t.Errorf("without lock: %+v", without)
	}
	if with.sold != stock || with.oversold != 0 {
		t.Errorf("with lock: %+v", with)
	}
	for _, l := range []line{without, with} {
		if l.fewest*workers > l.sold || l.most*workers < l.sold {
			t.Errorf("%+v does not add up for %d workers", l, workers)
		}
	}
	if strings.Contains(p.out.String(), "\r") {
		t.Error("progress is shown although the output is no terminal")
	}
	lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "dlock run") {
		t.Errorf("the last line is %q", last)
	}
	s.expectNoRest()
}

// newDemoShell is a shell in which the demo chooses the backend, and in which
// it is seen what it leaves behind.
func newDemoShell(t *testing.T) *shell {
	s := newShell(t)
	s.extra = []string{urlVariable + "=", "TMPDIR=" + s.temp()}
	if err := os.Mkdir(s.temp(), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shell) temp() string { return filepath.Join(s.dir, "temp @#?%") }

func (s *shell) expectNoRest() {
	s.t.Helper()
	if rest, err := os.ReadDir(s.temp()); err != nil || len(rest) > 0 {
		s.t.Errorf("left behind: %v, %v", rest, err)
	}
}

func tableLine(t *testing.T, p *process, title string) (l line) {
	t.Helper()
	for text := range strings.Lines(p.out.String()) {
		rest, found := strings.CutPrefix(text, title+" ")
		if !found {
			continue
		}
		var rate, wait string
		if _, err := fmt.Sscan(rest, &l.sold, &l.oversold, &rate, &wait, &l.fewest, &l.most); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return l
	}
	t.Fatalf("no line %q in %q", title, p.out.String())
	return l
}

func TestDemoWithBackend(t *testing.T) {
	s := newShell(t)
	s.start("demo", "--sales=1000", "--workers=5", "--backend=file://"+s.locks()).expect(0, "")
	if files, err := os.ReadDir(s.locks()); err != nil || len(files) == 0 {
		t.Errorf("the backend was not used: %v", err)
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	s := newDemoShell(t)
	p := s.start("demo", "--sales=100000000")
	workers := s.awaitWorkers(p.cmd.Process.Pid, 4)
	p.signal(syscall.SIGINT)
	p.expect(128+int(syscall.SIGINT), "")
	awaitGone(t, workers...)
	s.expectNoRest()
}

func TestDemoKilled(t *testing.T) {
	t.Parallel()
	s := newDemoShell(t)
	p := s.start("demo", "--sales=100000000")
	workers := s.awaitWorkers(p.cmd.Process.Pid, 4)
	p.signal(syscall.SIGKILL)
	awaitGone(t, workers...)
}

// awaitWorkers waits until n workers sell, and returns their process numbers.
func (s *shell) awaitWorkers(demo, n int) (pids []int) {
	s.t.Helper()
	until(s.t, "sales", func() bool {
		books, _ := filepath.Glob(filepath.Join(s.dir, "temp*", "*", "*", "worker-*"))
		for _, book := range books {
			if info, err := os.Stat(book); err != nil || info.Size() == 0 {
				return false
			}
		}
		return len(books) == n
	})
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(demo) + "/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			number, _ := strconv.Atoi(child)
			pids = append(pids, number)
		}
	}
	if len(pids) != n {
		s.t.Fatalf("%d children, want %d", len(pids), n)
	}
	return pids
}
