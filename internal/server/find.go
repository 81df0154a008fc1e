package server

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
)

// findBinary returns the path of a program: the explicit one when there is one,
// else from PATH, else the last match of the first pattern that matches.
func findBinary(explicit, name string, patterns ...string) (string, error) {
	if explicit != "" {
		return exec.LookPath(explicit)
	}
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	return findFile(name, patterns...)
}

// findFile returns the last match of the first pattern that matches, which is
// the newest version where the pattern stands for versions.
func findFile(name string, patterns ...string) (string, error) {
	for _, pattern := range patterns {
		if matches, _ := filepath.Glob(pattern); len(matches) > 0 {
			return matches[len(matches)-1], nil
		}
	}
	return "", missing(name)
}

func missing(name string) error {
	return fmt.Errorf("%s is not installed: run `make servers`", name)
}

var versionPattern = regexp.MustCompile(`\d+(\.\d+)+`)

// versionOf returns the first version number in what a program says.
func versionOf(ctx context.Context, binary, flag string) (string, error) {
	said, err := exec.CommandContext(ctx, binary, flag).Output()
	if err != nil {
		return "", err
	}
	return parseVersion(string(said))
}

func parseVersion(text string) (string, error) {
	if version := versionPattern.FindString(text); version != "" {
		return version, nil
	}
	return "", errors.New("no version number found")
}
