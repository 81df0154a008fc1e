package dlock_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/dlock-go/dlock"

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Fields(string(out))
}

// The packages that every user compiles need nothing but the standard library.
func TestRootNeedsOnlyTheStandardLibrary(t *testing.T) {
	own := map[string]bool{
		module: true, module + "/backend": true, module + "/internal/queue": true, module + "/internal/renewal": true,
	}
	for _, dep := range goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".", "./backend") {
		if !own[dep] {
			t.Errorf("the root package depends on %s", dep)
		}
	}
}

// A backend knows package backend, and neither the root nor another backend.
// quorum is built from any backends, all names them all.
func TestBackendsAreStrangers(t *testing.T) {
	for _, pkg := range goList(t, module+"/backend/...") {
		if strings.Contains(pkg, "/internal/") {
			continue
		}
		for _, dep := range goList(t, "-deps", pkg) {
			own := strings.HasPrefix(dep, module)
			allowed := !own || dep == pkg || dep == module+"/backend" || strings.HasPrefix(dep, pkg+"/")
			if !allowed && !strings.HasSuffix(pkg, "/all") {
				t.Errorf("%s depends on %s", pkg, dep)
			}
		}
	}
}

// The page on the architecture names files and functions that exist.
func TestArchitecturePage(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	code := make(map[string]string) // by the names of files
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		code[d.Name()] += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checkArchitecturePage(t, string(page), code)
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \|.*$`).FindAllStringSubmatch(string(page), -1) {
		own := make(map[string]string) // a row of the table is about the files of that backend alone
		files, _ := filepath.Glob("backend/" + row[1] + "/*.go")
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			own[filepath.Base(path)] = string(text)
		}
		if len(files) > 0 {
			checkArchitecturePage(t, row[0], own)
		}
	}
}

// checkArchitecturePage checks that text names files of code, and functions in them.
func checkArchitecturePage(t *testing.T, text string, code map[string]string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?:`(\\w+)` in\\s+)?`(?:[\\w/]+/)?(\\w+\\.go)`").FindAllStringSubmatch(text, -1) {
		function, file := m[1], m[2]
		switch text, ok := code[file]; {
		case !ok:
			t.Errorf("there is no %s", file)
		case function != "" && !strings.Contains(text, " "+function+"("):
			t.Errorf("there is no %s in %s", function, file)
		}
	}
}

// Only what is made for tests may bring package testing into a program.
func TestNoTestingInPrograms(t *testing.T) {
	harness := map[string]bool{
		module + "/conformance": true, module + "/internal/canary": true,
		module + "/internal/inturn": true, module + "/internal/server": true,
	}
	for _, pkg := range goList(t, module+"/...") {
		if harness[pkg] || strings.HasPrefix(pkg, module+"/bench") || strings.HasPrefix(pkg, module+"/internal/simulation") {
			continue
		}
		for _, dep := range goList(t, "-deps", pkg) {
			if dep == "testing" {
				t.Errorf("%s depends on testing", pkg)
			}
		}
	}
}

// Whoever needs the root module gets no driver, and nobody's version of one.
func TestRootModuleRequiresNoDriver(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require"))
		if len(fields) >= 2 && strings.Contains(fields[0], ".") && fields[0] != "golang.org/x/sys" && !strings.HasPrefix(line, "go ") && !strings.HasPrefix(line, "module") {
			t.Errorf("the root module requires %s", fields[0])
		}
	}
}

// What go install builds may have no replace directives.
func TestCommandReplacesNothing(t *testing.T) {
	text, err := os.ReadFile("cmd/dlock/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "replace") {
		t.Error("cmd/dlock/go.mod has a replace directive: go install refuses it")
	}
}

// wallClock is how often a file reads a clock that can be set, or makes a time that has nothing of the
// monotonic clock, and why a step of that clock does no harm there.
var wallClock = map[string]int{
	"internal/renewal/deadline.go": 2, // a lease ends by the clock that is further: one that is set back prolongs none
	"backend/context.go":           4, // likewise, how old something is; whether there is a deadline, and a limit after one
	"backend/memory/faults.go":     1, // tokens: the server's clock is the monotonic one since its start
	"backend/memory/lock.go":       2, // likewise
	"backend/quorum/token.go":      2, // a proposal: nodes take none far beyond their own clocks, and the next one makes up for that
	"backend/quorum/hold.go":       1, // the end of what has none
	"backend/quorum/acquire.go":    1, // for people
	"backend/quorum/ask.go":        1, // a caller's deadline, after a failure: its context has the last word
	"backend/quorum/node.go":       1, // a caller's deadline: by a step Close waits for less, but some moments at least
	"backend/quorum/renew.go":      1, // the deadline of the renewal, which is by the monotonic clock
	"backend/redis/vote.go":        1, // a token that is a day ahead: documented
	"backend/redis/inspect.go":     3, // the server's times, compared with each other alone
	"close.go":                     2, // a caller's deadline, kept as it is
}

// The clock of a machine can be set, and goes on while the machine sleeps. What the library measures is by the
// monotonic one, but for what is said above.
func TestWallClock(t *testing.T) {
	reads := regexp.MustCompile(`\.Unix(Milli|Micro|Nano)?\b|\bRound\(0\)|\bTruncate\(|\btime\.(Date|Parse|ParseInLocation)\(|\.(Deadline|Format|AppendFormat|UTC|Local)\(|WithDeadline`)
	for _, dir := range []string{".", "backend", "backend/memory", "backend/quorum", "backend/redis", "internal/queue", "internal/renewal"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(string(text)) {
				if code, _, _ := strings.Cut(line, "//"); reads.MatchString(code) {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			if len(lines) != wallClock[filepath.ToSlash(path)] {
				t.Errorf("%s reads a clock that can be set %d times, and may %d times: %q", path, len(lines), wallClock[filepath.ToSlash(path)], lines)
			}
		}
	}
}
