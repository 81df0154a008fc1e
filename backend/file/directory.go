package file

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A directory is where lock files are. It is held open, and files are opened relative
// to it: what takes the place of its path is noticed, and not used unseen.
type directory struct {
	path      string
	root      *os.Root
	file      *os.File // has a shared lock, which keeps cleaners such as systemd-tmpfiles away
	info      fs.FileInfo
	foldsCase bool // names that differ in case alone are one
	windows   bool // names are as Windows wants them
	users     atomic.Int64
	labels    labelFile // of those who wait and read in here
}

// openDirectory opens the directory at path. It creates it if it is missing, and
// refuses one in which others could put files, or whose file system keeps no locks. The
// caller uses it, until it leaves.
func openDirectory(path string) (*directory, error) {
	const tries = 100 // somebody may replace it just then
	for range tries {
		if d, err := openOrCreate(path); !errors.Is(err, errReplaced) {
			return d, err
		}
	}
	return nil, backend.Fail(backend.ErrUnavailable, fmt.Errorf("%s is removed as soon as it is there", path))
}

// openOrCreate is one try of openDirectory. It reports errReplaced if what was there at
// first is not there any more.
func openOrCreate(path string) (*directory, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(path, 0o700); err == nil {
			info, err = os.Lstat(path)
			err = replacedIfMissing(err)
		}
	}
	switch {
	case errors.Is(err, errReplaced):
		return nil, err
	case errors.Is(err, fs.ErrPermission):
		return nil, backend.Fail(backend.ErrAuth, err)
	case err != nil:
		return nil, backend.Fail(backend.ErrInvalidConfig, err)
	case !info.IsDir():
		return nil, unsafeDirectory(path, "is not a directory")
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, replacedIfMissing(err)
	}
	file, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(replacedIfMissing(err), root.Close())
	}
	d := &directory{path: path, root: root, file: file, info: info, windows: runtime.GOOS == "windows"}
	d.users.Store(1)
	if err := d.replacedOr(d.check()); err != nil {
		d.leave()
		return nil, err
	}
	return d, nil
}

// check looks at the directory that is open, whatever is at its path by now.
func (d *directory) check() error {
	info, err := d.file.Stat()
	if err != nil {
		return systemError(err)
	}
	switch {
	case !os.SameFile(info, d.info):
		return errReplaced
	case !isOwn(info):
		return unsafeDirectory(d.path, "belongs to another user")
	case isWritableByOthers(info):
		return unsafeDirectory(d.path, "can be written by other users: name a directory below it")
	}
	switch name, err := remoteFileSystem(d.file); {
	case err != nil:
		return err
	case name != "":
		return unsafeDirectory(d.path, "is on "+name+", whose locks are not those of one kernel")
	}
	d.keepFromCleaners()
	return d.findCase()
}

// keepFromCleaners locks the directory together with whoever else uses it. A cleaner
// that has it at the moment is soon through; another program is not waited for.
func (d *directory) keepFromCleaners() {
	for range 100 {
		if ok, err := lockWhole(d.file, backend.Shared); ok || err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// findCase finds out whether a file is found under a name in other letters. It makes one if
// those that are there do not tell: where nothing can be written, locks can be asked about.
func (d *directory) findCase() error {
	folds, known := d.caseOfFiles()
	if known {
		d.foldsCase = folds
		return nil
	}
	name := ".case-" + strings.ToLower(rand.Text())
	f, err := makeFile(d.root, name)
	if err != nil {
		return systemError(err)
	}
	_, err = d.root.Lstat(strings.ToUpper(name))
	d.foldsCase = err == nil
	return systemError(errors.Join(f.Close(), d.remove(name)))
}

// makeFile is what fails on a full file system.
var makeFile = func(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
}

// caseOfFiles reports whether a lock file that is there is found under a name in other
// letters, if there is one to tell by.
func (d *directory) caseOfFiles() (folds, known bool) {
	list, err := d.root.Open(".")
	if err != nil {
		return false, false
	}
	defer list.Close()
	entries, _ := list.ReadDir(100)
	for _, entry := range entries {
		base, ok := strings.CutSuffix(entry.Name(), ".lock")
		if !ok {
			continue
		}
		before, gone := d.root.Lstat(entry.Name())
		other, notFound := d.root.Lstat(base + ".LOCK")
		own, err := d.root.Lstat(entry.Name())
		switch {
		case gone != nil, err != nil, !os.SameFile(before, own): // it was not there all the time
		case notFound == nil:
			return os.SameFile(own, other), true
		case errors.Is(notFound, fs.ErrNotExist):
			return false, true
		}
	}
	return false, false
}

// use adds a user, unless the last one has left.
func (d *directory) use() bool {
	for {
		n := d.users.Load()
		if n == 0 || d.users.CompareAndSwap(n, n+1) {
			return n > 0
		}
	}
}

// leave closes d when its last user does so.
func (d *directory) leave() {
	if d.users.Add(-1) == 0 {
		d.labels.close(d)
		_ = d.file.Close()
		_ = d.root.Close()
	}
}

// checkCurrent reports errReplaced if the path does not name this directory any more.
func (d *directory) checkCurrent() error {
	info, err := os.Lstat(d.path)
	if err == nil && !os.SameFile(info, d.info) {
		err = errReplaced
	}
	return replacedIfMissing(err)
}

// replacedOr is err, unless that says that something is not there because d is not there any
// more.
func (d *directory) replacedOr(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if gone := d.checkCurrent(); gone != nil {
			return gone
		}
	}
	return err
}

// fileName is that of the lock. Names that differ in case alone have files that
// differ in more where the file system takes no notice of case. Windows allows no colon,
// and takes some names for devices.
func (d *directory) fileName(name string) string {
	short := backend.ShortName(name, 200)
	lower := strings.ToLower(short)
	isLost := d.foldsCase && (lower != short || strings.Contains(short, "%"))
	isForbidden := d.windows && (strings.Contains(short, ":") || devices.MatchString(lower))
	if isLost || isForbidden {
		if d.windows {
			lower = "_" + strings.ReplaceAll(lower, ":", "_")
		}
		sum := sha256.Sum256([]byte(name))
		digest := "~" + hex.EncodeToString(sum[:16])
		short = lower[:min(len(lower), 200-len(digest))] + digest
	}
	return short + ".lock"
}

// devices are what Windows takes for one, also with something after a dot.
var devices = regexp.MustCompile(`^(con|prn|aux|nul|(com|lpt)[0-9])(\.|$)`)

// absolute returns the path of the directory that o names, or of the user's
// default.
func (o *Options) absolute() (string, error) {
	if o == nil || o.Dir == "" {
		return defaultDirectory()
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", backend.Fail(backend.ErrInvalidConfig, err)
	}
	return dir, nil
}

// homeless is where there is a directory for a user who has no home.
var homeless = "/tmp"

// defaultDirectory is in the user's state directory. Which one it is follows from the
// user alone: if it cannot be used that is an error, and no other takes its place.
func defaultDirectory() (string, error) {
	h := home()
	if h == "" { // others may have made a directory of that name before: it is refused then
		return filepath.Join(homeless, "dlock-"+strconv.Itoa(os.Geteuid())), nil
	}
	if _, err := os.Stat(h); err != nil {
		return "", backend.Fail(backend.ErrInvalidConfig, fmt.Errorf("the home directory cannot be used, name a directory as in file:///var/lib/app/locks: %w", err))
	}
	return filepath.Join(h, ".local", "state", "dlock"), nil
}
