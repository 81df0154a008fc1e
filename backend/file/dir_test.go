//go:build linux

package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestUnsafeDirectories(t *testing.T) {
	good := t.TempDir()
	cases := map[string]func(dir string) error{
		"symlink":  func(dir string) error { return os.Symlink(good, dir) },
		"dangling": func(dir string) error { return os.Symlink(dir+"-none", dir) },
		"file":     func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"group":    func(dir string) error { return mkdir(dir, 0o770) },
		"sticky":   func(dir string) error { return mkdir(dir, os.ModeSticky|0o777) },
	}
	if os.Geteuid() == 0 {
		cases["owner"] = func(dir string) error { return errors.Join(mkdir(dir, 0o700), os.Chown(dir, 1, -1)) }
	}
	for name, f := range cases {
		dir := filepath.Join(t.TempDir(), name)
		must(t, f(dir))
		if _, err := New(&Options{Dir: dir}); !errors.Is(err, backend.ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func mkdir(dir string, mode os.FileMode) error {
	return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode))
}

func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	mustUnlock(t, mustLock(t, newClient(t, dir).Mutex("lock")))
	for path, mode := range map[string]os.FileMode{
		filepath.Dir(dir):               0o700,
		dir:                             0o700,
		filepath.Join(dir, "lock.lock"): 0o600,
	} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}

func TestDefaultDirectory(t *testing.T) {
	defer func(was string) { shared = was }(shared)
	shared = t.TempDir()
	dir := filepath.Join(shared, "dlock-"+strconv.Itoa(os.Geteuid()))
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	c, err := dlock.Open(t.Context(), "file://", nil)
	must(t, err)
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	must(t, c.Close(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, "lock.lock")); err != nil {
		t.Error(err)
	}

	must(t, os.RemoveAll(dir))
	must(t, os.Symlink(t.TempDir(), dir))
	if _, err := dlock.Open(t.Context(), "file://", nil); !errors.Is(err, dlock.ErrInvalidConfig) {
		t.Errorf("default is a symlink: %v", err)
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock.lock")
	target := filepath.Join(dir, "target")
	must(t, os.WriteFile(target, nil, 0o600))
	ours := fmt.Sprintf(contentFormat, 1, 0)
	for name, f := range map[string]func() error{
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"pipe":      func() error { return syscall.Mkfifo(path, 0o600) },
		"symlink":   func() error { return os.Symlink(target, path) },
		"text":      func() error { return os.WriteFile(path, []byte("hello"), 0o600) },
		"longer":    func() error { return os.WriteFile(path, []byte(ours+"x"), 0o600) },
		"similar":   func() error { return os.WriteFile(path, []byte("x"+ours[1:]), 0o600) },
	} {
		must(t, f())
		before, err := os.Lstat(path)
		must(t, err)
		m := newClient(t, dir).Mutex("lock")
		if _, err := m.Lock(t.Context()); !errors.Is(err, dlock.ErrConflict) {
			t.Errorf("%s: Lock: %v", name, err)
		}
		if _, err := m.TryLock(t.Context()); !errors.Is(err, dlock.ErrConflict) {
			t.Errorf("%s: TryLock: %v", name, err)
		}
		after, err := os.Lstat(path)
		must(t, err)
		if !os.SameFile(before, after) || before.ModTime() != after.ModTime() || before.Size() != after.Size() {
			t.Errorf("%s was touched", name)
		}
		must(t, os.RemoveAll(path))
	}
}

func TestURLs(t *testing.T) {
	for _, url := range []string{"file:///", "file://host/dir", "file://user@/dir", "file:///tmp", "file:///a/b?mode=1"} {
		if _, err := dlock.Open(t.Context(), url, nil); !errors.Is(err, dlock.ErrInvalidConfig) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
