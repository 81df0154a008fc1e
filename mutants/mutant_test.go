package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the module's directory.
const root = ".."

// A mutant is one seeded bug.
type mutant struct {
	name  string
	trap  string
	pkg   string // of the test that catches it, as the go command names it
	test  string // with its subtests
	flags []string
	hangs string // what its test waits for in vain; empty: it fails by itself
	edits []edit
}

// An edit is what a mutant does to one file.
type edit struct {
	file  string // from the module's root
	hunks []hunk
}

// A hunk replaces whole lines.
type hunk struct{ old, new string }

// all returns every mutant, by name.
func all(t *testing.T) []*mutant {
	t.Helper()
	paths, err := filepath.Glob("*.mutant")
	if err != nil {
		t.Fatal(err)
	}
	var out []*mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parse(strings.TrimSuffix(path, ".mutant"), string(text))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func parse(name, text string) (*mutant, error) {
	m := &mutant{name: name}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if !m.take(line) {
			return nil, fmt.Errorf("%s.mutant:%d: not understood: %q", name, i+1, line)
		}
	}
	if m.trap == "" || m.test == "" || len(m.edits) == 0 {
		return nil, fmt.Errorf("%s.mutant: trap, test or file is missing", name)
	}
	return m, nil
}

// take reads one line. It reports false if that makes no sense where it is.
func (m *mutant) take(line string) bool {
	last := len(m.edits) - 1
	if key, value, ok := strings.Cut(line, ": "); ok && (last < 0 || key == "file") {
		return m.set(key, value)
	}
	switch {
	case last < 0:
		return false
	case line == "@@":
		m.edits[last].hunks = append(m.edits[last].hunks, hunk{})
		return true
	}
	return m.edits[last].take(line)
}

func (m *mutant) set(key, value string) bool {
	switch key {
	case "trap":
		m.trap = value
	case "test":
		words := strings.Fields(value)
		if len(words) < 2 {
			return false
		}
		m.pkg, m.test, m.flags = words[0], words[1], words[2:]
	case "hangs":
		m.hangs = value
	case "file":
		m.edits = append(m.edits, edit{file: value})
	default:
		return false
	}
	return true
}

// take reads one line of the last hunk.
func (e *edit) take(line string) bool {
	if len(e.hunks) == 0 || line == "" {
		return false
	}
	h := &e.hunks[len(e.hunks)-1]
	text := line[1:] + "\n"
	switch line[0] {
	case ' ':
		h.old, h.new = h.old+text, h.new+text
	case '-':
		h.old += text
	case '+':
		h.new += text
	default:
		return false
	}
	return true
}

// apply returns the file as the mutant has it.
func (e *edit) apply() (string, error) {
	source, err := os.ReadFile(filepath.Join(root, e.file))
	if err != nil {
		return "", err
	}
	text := "\n" + string(source)
	for _, h := range e.hunks {
		if n := strings.Count(text, "\n"+h.old); n != 1 || h.old == "" {
			return "", fmt.Errorf("%s: found %d times:\n%s", e.file, n, h.old)
		}
		text = strings.Replace(text, "\n"+h.old, "\n"+h.new, 1)
	}
	if text[1:] == string(source) {
		return "", fmt.Errorf("%s: nothing is changed", e.file)
	}
	return text[1:], nil
}

// table is what docs/mutants.md says.
func table(mutants []*mutant) string {
	var b strings.Builder
	b.WriteString(`# Seeded bugs

A suite of tests is worth what it catches. Each row is a bug that a distributed
lock can have, seeded into the code, and the test that turns red for it. The
same test passes without the bug. ` + "`make mutants`" + ` builds and tests every one, and
writes this file when all are caught; see [mutants](../mutants/doc.go).

| mutant | trap | caught by |
|---|---|---|
`)
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | %s | `%s` in `%s` |\n", m.name, m.trap, m.test, strings.Join(append([]string{m.pkg}, m.flags...), " "))
	}
	return b.String()
}
