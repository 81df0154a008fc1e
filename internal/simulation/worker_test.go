package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// soundWorker is the program that runs plans where the library has no seeded bug.
func soundWorker(t *testing.T) string {
	t.Helper()
	if !*small && !*stuttering && !*standing {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return self
	}
	if *small && (*stuttering || *standing) {
		t.Fatal("the library has other mutexes, or small limits")
	}
	dir := t.TempDir()
	var replace map[string]string
	var err error
	switch {
	case *small:
		replace, err = overlay(dir, limits()...)
	case *standing:
		replace, err = processes(slowed(t, dir), dir)
	default:
		replace = slowed(t, dir)
	}
	binary := ""
	if err == nil {
		binary, err = build(dir, replace)
	}
	if err != nil {
		t.Fatal(err)
	}
	if *standing {
		standsStill(t, binary)
	}
	return binary
}

// build builds a worker in which other files stand for some, by their paths, and returns its own.
func build(dir string, replace map[string]string) (binary string, err error) {
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "simulation.test")
	if out, err := goTool(dir, "test", "-c", "-overlay", path, "-o", binary, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not build: %w\n%s", err, out)
	}
	return binary, nil
}

// goTool is a command of the toolchain that a worker is built with in dir.
func goTool(dir string, args ...string) *exec.Cmd {
	if !*standing {
		return exec.Command("go", args...)
	}
	root := filepath.Join(dir, linked)
	c := exec.Command(filepath.Join(root, "bin", "go"), args...)
	c.Env = append(os.Environ(), "GOROOT="+root, "GOTOOLCHAIN=local")
	return c
}
