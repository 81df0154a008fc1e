package simulation

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seeded      = flag.String("simulation.mutants", "", "which seeded bugs TestSeededBugs looks for, as a regular expression; empty: none")
	seededLimit = flag.Duration("simulation.mutant-cpu", 30*time.Second, "for how much of a processor's time it looks for each")
	seededTable = flag.String("simulation.mutant-table", "", "the file to which it adds what became of each; those in it are not looked for again")
)

// TestSeededBugs builds the library with each seeded bug of package mutants, and says
// which of them random plans find, by which rule, and how soon.
func TestSeededBugs(t *testing.T) {
	if *seeded == "" {
		return
	}
	before := ""
	if *seededTable != "" {
		text, err := os.ReadFile(*seededTable)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		before = string(text)
	}
	wanted, reasons := regexp.MustCompile(*seeded), beyond(t)
	for _, path := range seededBugs(t) {
		name := nameOfBug(path)
		head := "| `" + name + "` | "
		if !wanted.MatchString(name) || strings.Contains(before, head) {
			continue
		}
		found := "out of reach: " + reasons[name]
		if reasons[name] == "" {
			var err error
			if found, err = find(t, path); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
		}
		tabulate(t, head+found+" |\n")
	}
}

// tabulate says what became of a seeded bug.
func tabulate(t *testing.T, line string) {
	fmt.Print(line)
	if *seededTable == "" {
		return
	}
	f, err := os.OpenFile(*seededTable, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(line)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// seededBugs are the files of all seeded bugs.
func seededBugs(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../mutants/*.mutant")
	if err != nil || len(paths) == 0 {
		t.Fatal(len(paths), err)
	}
	return paths
}

func nameOfBug(path string) string { return strings.TrimSuffix(filepath.Base(path), ".mutant") }

// beyond says why no plan can find a seeded bug, by its name.
func beyond(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/beyond")
	if err != nil {
		t.Fatal(err)
	}
	reasons, reason := make(map[string]string), ""
	for line := range strings.Lines(string(text)) {
		name, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		switch {
		case !indented:
			reason = name
		case reasons[name] != "":
			t.Errorf("%s has two reasons", name)
		default:
			reasons[name] = reason
		}
	}
	return reasons
}

// What is beyond the simulation is a seeded bug that there is.
func TestBeyond(t *testing.T) {
	reasons := beyond(t)
	for _, path := range seededBugs(t) {
		delete(reasons, nameOfBug(path))
	}
	for name := range reasons {
		t.Errorf("there is no seeded bug %s", name)
	}
}

// find looks for one seeded bug. It fails if that does not fit the code any more.
func find(t *testing.T, path string) (string, error) {
	dir := t.TempDir()
	replace, err := overlay(dir, append(limits(), path)...)
	if err == nil && *standing { // nobody is stopped at a mutex of the library
		replace, err = processes(replace, dir)
	}
	if err != nil {
		return "", err
	}
	binary, err := build(dir, replace)
	if err != nil {
		return "", err
	}
	defer os.Remove(binary)
	w, sound := &worker{binary: binary}, &worker{binary: soundWorker(t)}
	defer w.close()
	defer sound.close()
	took, hours, plans := time.Duration(0), time.Duration(0), 0
	for seed := uint64(1); took < *seededLimit; seed++ {
		p := planOf(seed, where(path))
		if isLeftOut(p) {
			continue
		}
		plans++
		r := w.run(p)
		took += r.CPU
		hours += r.Virtual
		if len(r.Violations) == 0 {
			continue
		}
		v := r.Violations[0]
		if v.Rule == processLives && w.fails(p, v.Rule) == nil {
			continue // it was stopped as it took too long on a busy machine
		}
		if slices.ContainsFunc(make([]bool, 5), func(bool) bool { return sound.fails(p, v.Rule) != nil }) {
			continue // the bug is not what this seed shows
		}
		return fmt.Sprintf("%s | %d | %v", v.Rule, p.Seed, took.Round(time.Second/10)), nil
	}
	return fmt.Sprintf("not found | %d plans, %.1f hours | %v", plans, hours.Hours(), took.Round(time.Second)), nil
}

// where is the backend on which a seeded bug shows: the one it is named after, if any.
func where(path string) string {
	kind, _, _ := strings.Cut(filepath.Base(path), "-")
	if *on == "" && (kind == "redis" || kind == "quorum" || kind == "memory") {
		return kind
	}
	return *on
}

// overlay writes what mutants change, one after the other, and returns which files stand for which.
func overlay(dir string, paths ...string) (map[string]string, error) {
	text, err := concatenated(paths)
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	replace := make(map[string]string)
	var file, content, old, changed string
	flush := func() error {
		if old == "" {
			return nil
		}
		parts := strings.Split("\n"+content, "\n"+old)
		if len(parts) != 2 {
			return fmt.Errorf("%s no longer fits %s: these lines are found %d times:\n%s", filepath.Base(paths[len(paths)-1]), file, len(parts)-1, old)
		}
		content = (parts[0] + "\n" + changed + parts[1])[1:]
		old, changed = "", ""
		return nil
	}
	write := func() error {
		if err := flush(); err != nil || file == "" {
			return err
		}
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = to
		return os.WriteFile(to, []byte(content), 0o600)
	}
	for line := range strings.Lines(text) {
		name, is := strings.CutPrefix(line, "file: ")
		switch {
		case is:
			if err := write(); err != nil {
				return nil, err
			}
			file = strings.TrimSpace(name)
			path := filepath.Join(root, file)
			source, err := os.ReadFile(cmp.Or(replace[path], path))
			if err != nil {
				return nil, err
			}
			content = string(source)
		case file == "":
		case line == "@@\n":
			if err := flush(); err != nil {
				return nil, err
			}
		case line[0] == ' ':
			old, changed = old+line[1:], changed+line[1:]
		case line[0] == '-':
			old += line[1:]
		case line[0] == '+':
			changed += line[1:]
		}
	}
	if err := write(); err != nil {
		return nil, err
	}
	return replace, nil
}

// concatenated is the text of several files.
func concatenated(paths []string) (string, error) {
	var b strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), nil
}

// Every seeded bug fits the code as it is, and one that does not is no bug that nobody finds.
func TestOverlay(t *testing.T) {
	for _, path := range seededBugs(t) {
		if _, err := overlay(t.TempDir(), path); err != nil {
			t.Error(err)
		}
	}
	path := filepath.Join(t.TempDir(), "old.mutant")
	if err := os.WriteFile(path, []byte("trap: x\ntest: . TestX\nfile: close.go\n@@\n-\tnot there\n+\tx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := overlay(t.TempDir(), path); err == nil {
		t.Error("a seeded bug that does not fit is taken")
	}
}
