// Package comingfrom holds the pages of docs/coming-from together with the programs here.
package comingfrom

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the figures of bench/README.md into the pages")

const (
	pages = "../../docs/coming-from"
	index = "README.md"
)

var block = regexp.MustCompile("(?s)```(go|java)\n(.*?)```")

func pageFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(pages + "/*.md")
	if err != nil || len(files) < 2 {
		t.Fatal("no pages:", err)
	}
	return files
}

func read(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Every block of a page is part of its program. Lines of the program may be left out
// between those shown.
func TestPagesShowThePrograms(t *testing.T) {
	for _, page := range pageFiles(t) {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		blocks := block.FindAllStringSubmatch(read(t, page), -1)
		if filepath.Base(page) == index {
			if len(blocks) > 0 {
				t.Error("the index has code, which no test runs")
			}
			continue
		}
		programs, _ := filepath.Glob(name + "/[a-z]*.go")
		programs = slices.DeleteFunc(programs, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		if len(programs) == 0 || len(blocks) < 3 {
			t.Errorf("%s: %d files, %d blocks", page, len(programs), len(blocks))
		}
		inGo, inJava := read(t, programs...), read(t, "jvm/Before.java", "jvm/After.java")
		for _, b := range blocks {
			program := inGo
			if b[1] == "java" {
				program = inJava
			}
			if missing := missing(b[2], program); missing != "" {
				t.Errorf("%s: not in the program, or not in this order: %s", page, missing)
			}
		}
	}
}

// missing is the first line of part that is not in whole after those before it.
func missing(part, whole string) string {
	rest := strings.Split(whole, "\n")
	for want := range strings.Lines(part) {
		want = strings.TrimSpace(want)
		if want == "" {
			continue
		}
		i := slices.IndexFunc(rest, func(line string) bool { return strings.TrimSpace(line) == want })
		if i < 0 {
			return want
		}
		rest = rest[i+1:]
	}
	return ""
}

// Every folder with a program has a page, to which the index leads.
func TestEveryProgramHasAPage(t *testing.T) {
	folders, _ := filepath.Glob("*/both.go")
	leads := read(t, filepath.Join(pages, index))
	for _, folder := range folders {
		page := filepath.Dir(folder) + ".md"
		if !strings.Contains(leads, "("+page+")") {
			t.Errorf("the index does not lead to %s", page)
		}
		read(t, filepath.Join(pages, page))
	}
}

var (
	goVersion   = regexp.MustCompile(`with (\S+ v[0-9.]*[0-9])`)
	javaVersion = regexp.MustCompile(`with (?:Redisson|Curator|ShedLock) ([0-9.]*[0-9])`)
)

// The versions that the pages name are those that the tests run.
func TestVersions(t *testing.T) {
	goMod, pom := read(t, "go.mod"), read(t, "jvm/pom.xml")
	named := 0
	for _, page := range pageFiles(t) {
		text := read(t, page)
		for _, m := range goVersion.FindAllStringSubmatch(text, -1) {
			named++
			if !strings.Contains(goMod, m[1]+"\n") {
				t.Errorf("%s: go.mod does not require %s", page, m[1])
			}
		}
		for _, m := range javaVersion.FindAllStringSubmatch(text, -1) {
			named++
			if !strings.Contains(pom, "<version>"+m[1]+"</version>") {
				t.Errorf("%s: jvm/pom.xml has no version %s", page, m[1])
			}
		}
	}
	if named < 7 {
		t.Errorf("only %d versions are named", named)
	}
}

var figures = regexp.MustCompile(`(?s)(<!-- figures \| (.*?) \| (.*?) \| (.*?) -->\n)(.*?)(<!-- end of figures -->)`)

// What was measured is what bench/README.md says now.
func TestFigures(t *testing.T) {
	bench := read(t, "../../bench/README.md")
	for _, page := range pageFiles(t) {
		text := read(t, page)
		want := figures.ReplaceAllStringFunc(text, func(found string) string {
			m := figures.FindStringSubmatch(found)
			table, err := extract(bench, m[2], strings.Split(m[3], ", "), strings.Split(m[4], "; "))
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
			return m[1] + table + m[6]
		})
		switch {
		case want == text:
		case *update:
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s has other figures than bench/README.md: go -C examples/comingfrom test . -update", page)
		}
	}
}

// extract returns the columns and the rows of those names from the first table below a
// heading.
func extract(text, heading string, columns, names []string) (string, error) {
	_, below, found := strings.Cut(text, "\n## "+heading+"\n")
	_, table, hasTable := strings.Cut(below, "\n| ")
	table, _, _ = strings.Cut("| "+table, "\n\n")
	rows := strings.Split(table, "\n")
	if !found || !hasTable || len(rows) < 3 {
		return "", fmt.Errorf("no table below %q", heading)
	}
	var wanted []int
	titles := cells(rows[0])
	for _, c := range columns {
		i := slices.Index(titles, c)
		if i < 0 {
			return "", fmt.Errorf("no column %q below %q", c, heading)
		}
		wanted = append(wanted, i)
	}
	out := "| | " + strings.Join(columns, " | ") + " |\n|---|" + strings.Repeat("---:|", len(columns)) + "\n"
	for _, name := range names {
		count := 0
		for _, row := range rows[2:] {
			c := cells(row)
			if strings.Trim(c[0], "*") != name {
				continue
			}
			count++
			out += "| " + c[0] + " |"
			for _, i := range wanted {
				out += " " + c[i] + " |"
			}
			out += "\n"
		}
		if count == 0 {
			return "", fmt.Errorf("no row %q below %q", name, heading)
		}
	}
	return out, nil
}

func cells(row string) []string {
	parts := strings.Split(strings.Trim(row, "|"), "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
