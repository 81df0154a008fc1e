package dlock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Every Go block of the README is part of an example that runs. Lines of the
// example may be left out between those shown.
func TestREADMECodeIsInTheExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) == 0 {
		t.Fatal("the README has no Go code")
	}
	for _, block := range blocks {
		rest := lines(string(examples))
		for _, want := range lines(block[1]) {
			for len(rest) > 0 && rest[0] != want {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				t.Errorf("not in an example, or not in this order: %s", want)
				break
			}
		}
	}
}

func lines(code string) []string {
	var out []string
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
