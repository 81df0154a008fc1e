package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks follows the links of every page that lead to a file of the repository.
func TestLinks(t *testing.T) {
	const repo = "../.."
	pages := strings.Fields(git(t, repo, "ls-files", "*.md"))
	if len(pages) < 10 {
		t.Fatalf("there are %d pages", len(pages))
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(repo, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(found[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(repo, filepath.Dir(page), target)); err != nil {
				t.Errorf("%s leads to %s, which is not there", page, target)
			}
		}
	}
}
