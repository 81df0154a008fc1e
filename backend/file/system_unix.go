//go:build linux || darwin || freebsd

package file

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// errUnsupported is why there are no locks in files on this system.
var errUnsupported error

// isOwn reports whether the file belongs to the user this process acts for.
func isOwn(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// isWritableByOthers reports whether other users may put files into a directory.
func isWritableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// home is the home directory of the user this process acts for, as the user database
// says; empty if there is none. It does not depend on the environment, which differs
// between a login, cron, sudo and a service, whose locks would exclude nobody.
var home = func() string {
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || isNoHome(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// isNoHome reports whether dir is what user databases say of a user who has no home.
func isNoHome(dir string) bool {
	return dir == "/" || dir == "/var/empty" || strings.HasPrefix(dir, "/nonexistent")
}

// remove deletes a file or an empty directory.
func (d *directory) remove(name string) error { return d.root.Remove(name) }
