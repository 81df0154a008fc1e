//go:build linux

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	defer func(s string, h func() string) { homeless, home = s, h }(homeless, home)
	homeless = t.TempDir()
	atHome, ofNobody := t.TempDir(), filepath.Join(homeless, "dlock-"+strconv.Itoa(os.Geteuid()))
	for _, name := range []string{"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"} {
		t.Setenv(name, t.TempDir())
	}
	for h, dir := range map[string]string{atHome: filepath.Join(atHome, ".local/state/dlock"), "": ofNobody} {
		home = func() string { return h }
		c, err := dlock.Open(t.Context(), "file://", nil)
		must(t, err)
		mustUnlock(t, mustLock(t, c.Mutex("lock")))
		if got, want := c.Info().Address, "file://"+dir; got != want {
			t.Errorf("the directory is %s, and Info says %s", want, got)
		}
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

	home = func() string { return filepath.Join(homeless, "not there") }
	if _, err := dlock.Open(t.Context(), "file://", nil); !errors.Is(err, dlock.ErrInvalidConfig) {
		t.Errorf("the home directory is missing: %v", err)
	}
}

// On a full file system those who ask are answered, and Examine says that it is full.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	lease := mustLock(t, newClient(t, dir).Mutex("job"))
	defer mustUnlock(t, lease)
	defer func(f func(*os.Root, string) (*os.File, error)) { makeFile = f }(makeFile)
	makeFile = func(_ *os.Root, name string) (*os.File, error) {
		return nil, &os.PathError{Op: "openat", Path: name, Err: unix.ENOSPC}
	}

	c := newClient(t, dir)
	if s, err := c.Inspect(t.Context(), "job"); err != nil || len(s.Holders) != 1 || s.Holders[0].Token != lease.Token() {
		t.Errorf("%v, %v", s, err)
	}
	var full []dlock.Finding
	must(t, c.Examine(t.Context(), func(f dlock.Finding) {
		if f.Level == backend.Fault {
			full = append(full, f)
		}
	}))
	if len(full) != 1 || full[0].Subject != "space" {
		t.Errorf("faults: %v", full)
	}
	if _, err := New(&Options{Dir: t.TempDir()}); !errors.Is(err, dlock.ErrUnavailable) {
		t.Errorf("a directory without any file: %v", err)
	}
}

// What a file system does with letters shows in the files that are there: here in one whose
// name in large letters is a link to it.
func TestCaseOfFiles(t *testing.T) {
	for _, test := range []struct {
		files        []string
		link         string
		folds, known bool
	}{
		{},
		{files: []string{"1", "job"}},
		{files: []string{"1", "job.lock"}, known: true},
		{files: []string{"job.lock", "JOB.LOCK"}, known: true},
		{files: []string{"job.lock"}, link: "job.LOCK", folds: true, known: true},
	} {
		dir := t.TempDir()
		for _, name := range test.files {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		if test.link != "" {
			must(t, os.Link(filepath.Join(dir, test.files[0]), filepath.Join(dir, test.link)))
		}
		if folds, known := newBackend(t, dir).dir.Load().caseOfFiles(); folds != test.folds || known != test.known {
			t.Errorf("%+v: folds %v, known %v", test, folds, known)
		}
	}
}

// The directory does not follow from the environment.
func TestHome(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	if h := home(); h == os.Getenv("HOME") {
		t.Errorf("the home directory is %s, as the environment says", h)
	}
}

func TestRemoteFileSystems(t *testing.T) {
	for magic, name := range map[uint32]string{0x6969: "NFS", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0x65735546: "FUSE", 0x01021997: "9p"} {
		if remote[magic] != name {
			t.Errorf("%s is not refused", name)
		}
	}
	var fs unix.Statfs_t
	must(t, unix.Statfs(t.TempDir(), &fs))
	defer delete(remote, uint32(fs.Type))
	remote[uint32(fs.Type)] = "NFS"
	if _, err := New(&Options{Dir: t.TempDir()}); !errors.Is(err, backend.ErrInvalidConfig) || !strings.Contains(fmt.Sprint(err), "NFS") {
		t.Errorf("error is %v", err)
	}
}

// While anybody uses the directory a cleaner, which wants it alone, leaves it.
func TestDirectoryIsKept(t *testing.T) {
	dir := t.TempDir()
	b, err := New(&Options{Dir: dir})
	must(t, err)
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a cleaner takes the directory: %v", err)
	}
	must(t, b.Close(t.Context()))
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

// What takes the directory's place is looked at as the first one was, and who holds
// locks in the old one has lost them.
func TestReplacedDirectory(t *testing.T) {
	dir, other := filepath.Join(t.TempDir(), "d"), t.TempDir()
	must(t, os.Chmod(other, 0o777))
	c := newClient(t, dir)
	lease := mustLock(t, c.Mutex("held"))
	must(t, os.Rename(dir, dir+"-old"))
	must(t, os.Symlink(other, dir))
	if _, err := c.Mutex("lock").TryLock(t.Context()); !errors.Is(err, dlock.ErrInvalidConfig) {
		t.Errorf("a link to a directory that everybody may write to: %v", err)
	}
	select {
	case <-lease.Done():
	case <-time.After(limit):
		t.Error("a lock in a directory that nobody else finds is not lost")
	}
	left, err := os.ReadDir(other)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left in the other directory: %v", left)
	}
}

// A directory that is replaced again and again is closed with the last lock in it.
func TestReplacedDirectoriesAreClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	b, err := New(&Options{Dir: dir})
	must(t, err)
	defer b.Close(t.Context())
	r := backend.Request{Name: "lock", Mode: backend.Exclusive, TTL: time.Minute}
	open := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, fd := range all {
			if path, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(path, dir) {
				n++
			}
		}
		return n
	}
	for i := range 5 {
		h, err := b.Acquire(t.Context(), r)
		must(t, err)
		must(t, os.Rename(dir, fmt.Sprint(dir, i)))
		again, err := b.Acquire(t.Context(), r)
		must(t, err)
		if n := open(); n != 4+2*filesOfHold { // a directory is open twice: as os.Root, and as the file that is locked
			t.Errorf("%d open, want two directories with a lock each", n)
		}
		if err := b.Release(t.Context(), h); !errors.Is(err, backend.ErrLost) {
			t.Errorf("a lock in a directory that was replaced: %v", err)
		}
		must(t, b.Release(t.Context(), again))
		if n := open(); n != 2 {
			t.Errorf("%d open, want the directory", n)
		}
	}
}

// Where the file system takes no notice of case, names that differ in nothing else
// have files that do.
func TestNamesOnACaseFoldingFileSystem(t *testing.T) {
	d := &directory{foldsCase: true}
	seen := make(map[string]string)
	for _, name := range []string{
		"a", "A", "lock", "Lock", "LOCK", "a/b", "a%2fb", "a%2Fb", "A/B", strings.Repeat("x", 1024), strings.Repeat("X", 1024),
		strings.Repeat("x", 1023) + "X", strings.Repeat("/", 100), "\xab", "\xAB",
	} {
		file := d.fileName(name)
		if other, taken := seen[strings.ToLower(file)]; taken && other != name {
			t.Errorf("%.10q and %.10q have one file", name, other)
		}
		if seen[strings.ToLower(file)] = name; len(file) > 255 {
			t.Errorf("the file of %.10q has a name of %d bytes", name, len(file))
		}
	}
}

// TestNamesOnWindows has a file that Windows can make for every name, and another for each.
func TestNamesOnWindows(t *testing.T) {
	for _, d := range []*directory{{windows: true}, {windows: true, foldsCase: true}} {
		seen := make(map[string]string)
		for _, name := range []string{
			"orders:42", "orders_42", "_orders_42", "a:b:c", ":", "_", "con", "CON", "con.job", "Nul.job", "aux", "prn", "com1", "lpt9.x",
			"_con", "console", "com10", strings.Repeat(":", 200), strings.Repeat("x", 1024),
		} {
			file := d.fileName(name)
			base, _, _ := strings.Cut(strings.ToLower(file), ".")
			if strings.ContainsAny(file, `:<>"|?*\/`) || slices.Contains([]string{"con", "prn", "aux", "nul", "com1", "lpt9"}, base) {
				t.Errorf("the file of %.10q is %q", name, file)
			}
			if other, taken := seen[file]; taken {
				t.Errorf("%.10q and %.10q have one file", name, other)
			}
			if seen[file] = name; len(file) > 255 {
				t.Errorf("the file of %.10q has a name of %d bytes", name, len(file))
			}
		}
	}
}

// TestNoHome has the homes of users of services on Debian, FreeBSD and macOS be none.
func TestNoHome(t *testing.T) {
	for dir, want := range map[string]bool{"/nonexistent": true, "/var/empty": true, "/": true, "/var/lib/app": false, "/home/a": false, "/root": false} {
		if isNoHome(dir) != want {
			t.Errorf("%s: %v", dir, !want)
		}
	}
}

func TestDirectoryComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	c := newClient(t, dir)
	must(t, os.RemoveAll(dir))
	mustUnlock(t, mustLock(t, c.Mutex("lock")))
	must(t, os.RemoveAll(dir))
	lease, err := c.Mutex("lock").TryLock(t.Context())
	must(t, err)
	mustUnlock(t, lease)
}

// TestDirectoryThatCannotBeMade has what is above the directory lead to where none can be
// made. Who asks for a lock is told so, and not only when its patience has ended.
func TestDirectoryThatCannotBeMade(t *testing.T) {
	above := filepath.Join(t.TempDir(), "above")
	b := newBackend(t, filepath.Join(above, "locks"))
	must(t, os.RemoveAll(above))
	must(t, os.Symlink("/proc/self", above))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := b.Acquire(ctx, lockRequest("a", "", backend.Exclusive)); !errors.Is(err, backend.ErrInvalidConfig) {
		t.Errorf("%v", err)
	}
}
