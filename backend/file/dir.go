//go:build linux

package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/dlock-go/dlock/backend"
)

// directory returns the absolute path of the directory that o names, or of
// the user's default.
func (o *Options) directory() (string, error) {
	if o == nil || o.Dir == "" {
		return defaultDir(), nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", backend.Fail(backend.ErrInvalidConfig, err)
	}
	return dir, nil
}

// shared is where every process of the machine looks for its user's directory.
// It does not depend on the environment: that of a login, of cron and of a
// service differ, and their locks would exclude nobody.
var shared = "/tmp"

// defaultDir is a place that belongs to this user alone. Others may have made
// a directory of that name before: prepare refuses it then.
func defaultDir() string {
	return filepath.Join(shared, "dlock-"+strconv.Itoa(os.Geteuid()))
}

// prepare creates dir if it is missing, and refuses one in which others could
// put files.
func prepare(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			info, err = os.Lstat(dir)
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return backend.Fail(backend.ErrAuth, err)
	case err != nil:
		return backend.Fail(backend.ErrInvalidConfig, err)
	case !info.IsDir():
		return exposed(dir, "is not a directory")
	case !mine(info):
		return exposed(dir, "belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return exposed(dir, "can be written by other users")
	}
	return nil
}

func exposed(dir, problem string) error {
	return backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("%s %s", dir, problem))
}

// mine reports whether the file belongs to the user this process acts for.
func mine(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
