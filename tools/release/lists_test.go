package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	updated   = regexp.MustCompile(`(?m)^ *directories: \[(.*)\]$`)
	checked   = regexp.MustCompile(`(?m)^vulnerabilities\).*govulncheck@latest (.*) ;;$`)
	braces    = regexp.MustCompile(`(\S*)\{(\S*)\}(\S*)`)
	target    = regexp.MustCompile(`(?m)^([a-z-]+):`)
	phony     = regexp.MustCompile(`(?m)^\.PHONY: (.*)$`)
	makes     = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)")
	supported = regexp.MustCompile(`(?s)\nsupported='\n(.*?)'`)
	elsewhere = regexp.MustCompile(`(?m)^ *- run: go test (\./backend .*)$`)
	lowestGo  = regexp.MustCompile(`(?m)\{module: "?([^,"]+)"?, go: "([\d.]+)"\}`)
)

// TestUpdatedModules has Dependabot look at each module once, and raise the versions of
// those alone whose go.mod does not say the lowest that work.
func TestUpdatedModules(t *testing.T) {
	entries := updated.FindAllStringSubmatch(read(t, ".github/dependabot.yml"), -1)
	if len(entries) != 2 {
		t.Fatalf("there are %d entries for modules", len(entries))
	}
	lowest := make(map[string]bool)
	for _, m := range publicModules(t) {
		lowest[path.Join("/", m.dir)] = !hasAllDrivers(m)
	}
	for file := range strings.FieldsSeq(git(t, "../..", "ls-files", "go.mod", "*/go.mod")) {
		dir := path.Join("/", path.Dir(file))
		var by []int
		for i, entry := range entries {
			if slices.ContainsFunc(strings.Split(entry[1], ", "), func(pattern string) bool {
				matches, err := path.Match(strings.Trim(pattern, `"`), dir)
				return err == nil && matches
			}) {
				by = append(by, i)
			}
		}
		want := []int{0}
		if lowest[dir] {
			want = []int{1}
		}
		if !slices.Equal(by, want) {
			t.Errorf("%s is in the entries %v, want %v", dir, by, want)
		}
	}
}

// hasAllDrivers reports whether a module is built of the others.
func hasAllDrivers(m *module) bool {
	return slices.Contains([]string{"backend/all", "cmd/dlock", "conformance"}, m.dir)
}

// TestVulnerabilitiesOfPublicModules has the search for known vulnerabilities reach all
// that people require.
func TestVulnerabilitiesOfPublicModules(t *testing.T) {
	var dirs []string
	for word := range strings.FieldsSeq(found(t, checked, "scripts/modules")[0]) {
		if parts := braces.FindStringSubmatch(word); parts != nil {
			for middle := range strings.SplitSeq(parts[2], ",") {
				dirs = append(dirs, parts[1]+middle+parts[3])
			}
		} else {
			dirs = append(dirs, word)
		}
	}
	for _, m := range publicModules(t) {
		want := "./" + m.dir + "/..."
		if m.dir == "." {
			want = "./..."
		}
		if !slices.Contains(dirs, want) {
			t.Errorf("%s is not among %q", want, dirs)
		}
	}
}

// TestLowestGo has a test with the lowest version of Go that go.mod allows, as
// docs/compatibility.md says, for each module that programs are built with.
func TestLowestGo(t *testing.T) {
	const workflow = ".github/workflows/test.yml"
	lowest := make(map[string]string)
	for _, entry := range lowestGo.FindAllStringSubmatch(read(t, workflow), -1) {
		lowest[entry[1]] = entry[2]
	}
	for _, m := range publicModules(t) {
		if hasAllDrivers(m) {
			continue
		}
		if got, want := lowest[m.dir], strings.TrimSuffix(m.file.Go.Version, ".0"); got != want {
			t.Errorf("%s tests %s with Go %q, want %q", workflow, m.dir, got, want)
		}
	}
}

// TestTargets has every target of the Makefile run though there is a file of its name, and
// every page name targets that exist.
func TestTargets(t *testing.T) {
	var targets []string
	for _, line := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, line[1])
	}
	declared := strings.Fields(found(t, phony, "Makefile")[0])
	for _, name := range targets {
		if !slices.Contains(declared, name) {
			t.Errorf("%s is not phony", name)
		}
	}
	for page := range strings.FieldsSeq(git(t, "../..", "ls-files", "*.md")) {
		for _, named := range makes.FindAllStringSubmatch(read(t, page), -1) {
			if !slices.Contains(targets, named[1]) {
				t.Errorf("%s names make %s, which does not exist", page, named[1])
			}
		}
	}
}

// TestServersAtNight has the suite run every night on each version of a server that
// scripts/versions has.
func TestServersAtNight(t *testing.T) {
	nightly := read(t, ".github/workflows/nightly.yml")
	servers := strings.Split(strings.TrimSpace(found(t, supported, "scripts/versions")[0]), "\n")
	if len(servers) < 10 {
		t.Fatalf("servers are %q", servers)
	}
	for _, server := range servers {
		if !strings.Contains(nightly, "          - "+server+"\n") {
			t.Errorf("%s is not tested at night", server)
		}
	}
}

// TestPackagesOfOtherSystems has each package that the workflow tests on macOS and Windows
// have tests there.
func TestPackagesOfOtherSystems(t *testing.T) {
	packages := strings.Fields(found(t, elsewhere, ".github/workflows/test.yml")[0])
	for _, system := range []string{"darwin", "windows"} {
		c := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", "{{.Dir}} {{len .TestGoFiles}}{{len .XTestGoFiles}}"}, packages...)...)
		c.Dir, c.Env = "../..", append(os.Environ(), "GOOS="+system)
		listed, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(listed)) {
			if strings.HasSuffix(line, " 00\n") {
				t.Errorf("on %s there are no tests in %s", system, line)
			}
		}
	}
}

func publicModules(t *testing.T) []*module {
	t.Helper()
	all, err := readModules("../..")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m *module) bool { return !m.isPublic() })
}

// found returns what the groups of pattern match in a file of the repository.
func found(t *testing.T, pattern *regexp.Regexp, name string) []string {
	t.Helper()
	match := pattern.FindStringSubmatch(read(t, name))
	if match == nil {
		t.Fatalf("%s has nothing like %s", name, pattern)
	}
	return match[1:]
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
