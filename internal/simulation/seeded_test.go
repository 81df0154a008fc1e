package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seeded      = flag.String("simulation.mutants", "", "which seeded bugs TestSeededBugs looks for, as a regular expression; empty: none")
	seededLimit = flag.Duration("simulation.mutant-limit", time.Minute, "how long it looks for each")
)

// TestSeededBugs builds the library with each seeded bug of package mutants, and says
// which of them random plans find, by which rule, and how soon.
func TestSeededBugs(t *testing.T) {
	if *seeded == "" || os.Getenv("SIMULATION_WORKER") != "" {
		return
	}
	paths, err := filepath.Glob("../../mutants/*.mutant")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(*seeded)
	for _, path := range paths {
		if name := strings.TrimSuffix(filepath.Base(path), ".mutant"); wanted.MatchString(name) {
			fmt.Println("| `" + name + "` | " + find(t, path) + " |")
		}
	}
}

// find looks for one seeded bug.
func find(t *testing.T, path string) string {
	binary := filepath.Join(t.TempDir(), "simulation.test")
	overlay, err := overlay(t.TempDir(), path)
	if err != nil {
		return err.Error()
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		return string(out)
	}
	self, err := os.Executable()
	if err != nil {
		return err.Error()
	}
	w, sound := &worker{binary: binary}, &worker{binary: self}
	defer w.close()
	defer sound.close()
	began := time.Now()
	for seed := uint64(1); time.Since(began) < *seededLimit; seed++ {
		p := NewPlan(seed, where(path))
		if r := w.run(p); len(r.Violations) > 0 {
			v := r.Violations[0]
			if slices.ContainsFunc(make([]bool, 5), func(bool) bool { return sound.fails(p, v.Rule) != nil }) {
				continue // the bug is not what this seed shows
			}
			return strings.Join([]string{v.Rule, fmt.Sprint(seed), time.Since(began).Round(time.Second / 10).String()}, " | ")
		}
	}
	return "not found | | "
}

// where is the backend on which a seeded bug shows: the one it is named after, if any.
func where(path string) string {
	kind, _, _ := strings.Cut(filepath.Base(path), "-")
	if *on == "" && (kind == "redis" || kind == "quorum" || kind == "memory") {
		return kind
	}
	return *on
}

// overlay writes what a mutant changes, and the list of that for the go command.
func overlay(dir, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	var file, content, old, changed string
	flush := func() {
		content = strings.Replace(content, old, changed, 1)
		old, changed = "", ""
	}
	write := func() error {
		flush()
		if file == "" {
			return nil
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = to
		return os.WriteFile(to, []byte(content), 0o600)
	}
	for line := range strings.Lines(string(text)) {
		name, is := strings.CutPrefix(line, "file: ")
		switch {
		case is:
			if err := write(); err != nil {
				return "", err
			}
			file = strings.TrimSpace(name)
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return "", err
			}
			content = string(source)
		case file == "":
		case line == "@@\n":
			flush()
		case line[0] == ' ':
			old, changed = old+line[1:], changed+line[1:]
		case line[0] == '-':
			old += line[1:]
		case line[0] == '+':
			changed += line[1:]
		}
	}
	if err := write(); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "overlay.json")
	return to, os.WriteFile(to, list, 0o600)
}
