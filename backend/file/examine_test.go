//go:build linux

package file

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// A directory that is well, one that cleaners sweep, and one that takes no file.
func TestExamine(t *testing.T) {
	examine := func(b *Backend) map[string]backend.Level {
		t.Helper()
		levels := make(map[string]backend.Level)
		must(t, b.Examine(t.Context(), func(f backend.Finding) {
			levels[f.Subject] = f.Level
			if (f.Level > backend.OK) != (f.Advice != "") {
				t.Errorf("advice is for what is not as it should be: %v", f)
			}
		}))
		return levels
	}
	dir := t.TempDir()
	b := newBackend(t, dir)
	if got := examine(b); got["directory"] != backend.OK || got["place"] != backend.Warning || got["space"] != backend.OK || len(got) != 3 {
		t.Errorf("a directory below %s: %v", os.TempDir(), got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	must(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf(".examine-%d", os.Getpid())), 0o700)) // where the probe would be
	if got := examine(b); got["space"] != backend.Fault {
		t.Errorf("no file can be made: %v", got)
	}
	for path, want := range map[string]backend.Level{
		"/run/locks": backend.OK, "/tmpx": backend.OK, "/tmp": backend.Warning, "/var/tmp/a/b": backend.Warning, "/home/..user/locks": backend.OK,
	} {
		if f := checkTemporary(filepath.FromSlash(path)); f.Level != want {
			t.Errorf("%s: %v", path, f)
		}
	}
}
