package conformance_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/file"
	"github.com/dlock-go/dlock/conformance"
)

func fileHarness(t testing.TB) conformance.Harness {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, backend.ShortName(name, 200)+".lock") }
	return conformance.Harness{
		Name:      "file",
		Version:   "1",
		Scheme:    "file",
		URL:       "file://" + dir,
		TTL:       *ttl,
		MostHolds: mostHolds,
		Open: func(t testing.TB, o dlock.Options) *conformance.Peer {
			b, err := file.New(&file.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			c, err := dlock.New(b, &o)
			if err != nil {
				t.Fatal(err)
			}
			return &conformance.Peer{Client: c, Backend: b}
		},
		Evict: func(t testing.TB, name string) {
			if err := os.Remove(path(name)); err != nil {
				t.Fatal(err)
			}
		},
		Waiting:  func(t testing.TB, name string) int { return positionsIn(t, path(name)) },
		Residue:  func(t testing.TB) []string { return openFiles(t, dir) },
		State:    func(t testing.TB) string { return contentOf(t, dir) },
		Foreign:  func(t testing.TB, name string) func() error { return foreignFile(t, path(name)) },
		Wipe:     func(t testing.TB) { removeAll(t, dir) },
		Optional: []string{"Breaker", "Downgrader", "Inspector", "Pinger", "Renewer", "Transferer"},
	}
}

// contentOf is all that there is below dir, and when it was written.
func contentOf(t testing.TB, dir string) string {
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, path, info.Mode(), info.ModTime())
		if entry.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%q\n", text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// openFiles lists what this process has open in dir.
func openFiles(t testing.TB, dir string) (open []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(target, dir) {
			open = append(open, target)
		}
	}
	return open
}

func foreignFile(t testing.TB, path string) func() error {
	content := []byte("somebody else's\n")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() error {
		now, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(now, content) {
			err = fmt.Errorf("the file says %q", now)
		}
		return err
	}
}

func removeAll(t testing.TB, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
}
