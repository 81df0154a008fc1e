package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// Examine implements backend.Examiner. What New refuses, such as a file system whose
// locks are not those of one kernel, cannot be found here any more.
func (b *Backend) Examine(ctx context.Context, report func(backend.Finding)) error {
	return b.withDirectory(ctx, func(dir *directory) error {
		report(backend.Good("directory", dir.path+" is this user's alone, on a file system of this machine"))
		report(checkTemporary(dir.path))
		report(checkSpace(dir))
		return nil
	})
}

// checkTemporary warns of a directory that others see under another path, or that is
// swept.
func checkTemporary(path string) backend.Finding {
	const subject = "place"
	for _, temp := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if rel, err := filepath.Rel(temp, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return backend.Warn(subject, path+" is in "+temp+": a service with PrivateTmp or in a container has another one, and cleaners sweep it",
				"choose a directory under /run, /var/lib or the user's home: file:///its/path")
		}
	}
	return backend.Good(subject, "all of this user's processes on this machine that see "+path+" exclude one another")
}

// checkSpace makes a file such as a lock has, and removes it.
func checkSpace(dir *directory) backend.Finding {
	const subject = "space"
	name := fmt.Sprintf(".examine-%d", os.Getpid())
	f, err := makeFile(dir.root, name)
	if err == nil {
		_, err = f.Write(make([]byte, 4096))
		_ = f.Close()
		_ = dir.remove(name)
	}
	if err != nil {
		return backend.Bad(subject, "no lock file can be made: "+systemError(err).Error(), "make room, or choose another directory")
	}
	return backend.Good(subject, "there is room for lock files")
}
