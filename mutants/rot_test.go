package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every mutant fits the code as it is, and names a test that there is.
func TestMutantsFit(t *testing.T) {
	mutants := all(t)
	if len(mutants) < 25 {
		t.Errorf("%d mutants, want 25 or more", len(mutants))
	}
	for _, m := range mutants {
		for _, e := range m.edits {
			if _, err := e.apply(); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		if !exists(t, m) {
			t.Errorf("%s: there is no %s in %s", m.name, m.test, m.pkg)
		}
	}
}

// docs/mutants.md is what make mutants has written last.
func TestTableIsCurrent(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/mutants.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != table(all(t)) {
		t.Error("docs/mutants.md does not say what the mutants are: run make mutants")
	}
}

// What makes no sense is not taken for a mutant.
func TestParse(t *testing.T) {
	const good = "trap: a\ntest: ./p TestX -f=1\nfile: doc.go\n@@\n-package mutants\n+package x\n"
	m, err := parse("m", good)
	if err != nil || m.pkg != "./p" || m.test != "TestX" || len(m.flags) != 1 {
		t.Fatalf("got %+v, %v", m, err)
	}
	for _, bad := range []string{
		"", "trap: a\n", strings.Replace(good, "trap", "trick", 1), strings.Replace(good, "@@", "@", 1),
		strings.Replace(good, "-package", "package", 1), strings.Replace(good, " TestX -f=1", "", 1),
	} {
		if _, err := parse("m", bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

// A hunk that is found never, or twice, or changes nothing, is refused.
func TestApply(t *testing.T) {
	const file = "mutants/doc.go"
	e := edit{file, []hunk{{"package mutants\n", "package x\n"}}}
	if text, err := e.apply(); err != nil || !strings.HasSuffix(text, "\npackage x\n") {
		t.Errorf("got %q, %v", text, err)
	}
	for _, h := range []hunk{{"package\n", "x\n"}, {"//\n", "x\n"}, {"", "x\n"}, {"package mutants\n", "package mutants\n"}} {
		e := edit{file, []hunk{h}}
		if _, err := e.apply(); err == nil {
			t.Errorf("no error for %q", h)
		}
	}
}

// exists reports whether the package has the test of m. Of subtests it knows
// the conformance suite's.
func exists(t *testing.T, m *mutant) bool {
	t.Helper()
	top, sub, _ := strings.Cut(m.test, "/")
	if top == "TestConformance" {
		return isProperty(t, sub)
	}
	paths, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == top {
				return true
			}
		}
	}
	return false
}

var property = regexp.MustCompile(`(?m)^\t\{"([^"]+)", \w+, (quiet|false)\},$`)

// isProperty reports whether backend/shared/Property or backend/Property is a
// subtest of the conformance suite.
func isProperty(t *testing.T, sub string) bool {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, "conformance/conformance.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(sub, "/")
	for _, p := range property.FindAllStringSubmatch(string(source), -1) {
		if p[2] == "quiet" && name == p[1] || p[2] != "quiet" && name == "shared/"+p[1] {
			return true
		}
	}
	return false
}
