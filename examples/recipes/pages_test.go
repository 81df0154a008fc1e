package recipes_test

import (
	"flag"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files into the pages that show them")

// A block of a page that shows a file names it: ```go main.go
var block = regexp.MustCompile("(?ms)^```(\\w+)(?: ([\\w./-]+))?\n(.*?)^```$")

// Each page shows the whole program as it is tested, and no other Go code.
func TestPagesShowThePrograms(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) == 0 {
		t.Fatal("no programs", err)
	}
	contents, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		folder := filepath.Dir(program)
		name := filepath.Join(folder, "README.md")
		page, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(contents), "(recipes/"+folder+")") {
			t.Errorf("the table of contents leaves out %s", folder)
		}
		shown := map[string]bool{}
		current := block.ReplaceAllStringFunc(string(page), func(text string) string {
			parts := block.FindStringSubmatch(text)
			language, file := parts[1], parts[2]
			if file == "" {
				if language == "go" {
					t.Errorf("%s: Go code of no file", name)
				}
				return text
			}
			shown[file] = true
			content, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil {
				t.Error(err)
			}
			return "```" + language + " " + file + "\n" + string(content) + "```"
		})
		if !shown["main.go"] {
			t.Errorf("%s does not show its program", name)
		}
		for _, path := range imports(t, program) {
			if !isGot(path, current) {
				t.Errorf("%s: go get leaves out %s", name, path)
			}
		}
		switch {
		case current == string(page):
		case *update:
			err = os.WriteFile(name, []byte(current), 0o644)
		default:
			t.Errorf("%s shows another program: go test . -update", name)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// imports returns what a program imports from other modules.
func imports(t *testing.T, program string) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), program, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
			paths = append(paths, path)
		}
	}
	return paths
}

var goGet = regexp.MustCompile("(?ms)^go get (.*?)^```$")

// isGot reports whether the command go get of a page names the package or its module.
func isGot(path, page string) bool {
	command := goGet.FindStringSubmatch(page)
	if command == nil {
		return false
	}
	for module := range strings.FieldsSeq(command[1]) {
		own := module == "github.com/dlock-go/dlock" && strings.Contains(path, module+"/backend/") && !strings.HasSuffix(path, "/file")
		if path == module || strings.HasPrefix(path, module+"/") && !own {
			return true
		}
	}
	return false
}
