package file

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/dlock-go/dlock/backend"
)

// Some files stand for somebody who lives: label files, and tickets on systems without
// record locks. Their owner keeps them locked as a whole. Whoever finds one that is not
// locked removes it. Their names tell them from files of others in the same directory,
// which nobody opens or removes.

// makeLocked makes a file in dir, of a name that begins with prefix, and locks it.
func (d *directory) makeLocked(dir, prefix string) (path string, f *os.File, err error) {
	const tries = 100 // others may take it for one of the dead before it is locked
	for range tries {
		path = filepath.Join(dir, prefix+rand.Text()[:8])
		if f, err = d.openLocked(path); f != nil || err != nil {
			return path, f, err
		}
		_ = d.remove(path)
	}
	return "", nil, backend.Fail(backend.ErrUnavailable, fmt.Errorf("%s: files are removed by another program", filepath.Join(d.path, dir)))
}

// openLocked opens or makes the file at path and locks it. It returns nil without an error
// if another has it, or it was removed meanwhile.
func (d *directory) openLocked(path string) (*os.File, error) {
	f, err := d.root.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.root.Mkdir(filepath.Dir(path), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, systemError(err)
	}
	ok, err := lockWhole(f, backend.Exclusive)
	if ok && d.isAt(path, f) {
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

// isAt reports whether a path leads to that file.
func (d *directory) isAt(path string, f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := d.root.Lstat(path)
	return err == nil && os.SameFile(info, there)
}

// isAlive reports whether the owner of a file lives, and removes that of the dead. An
// owner who has made it and not locked it yet finds that out, and makes another.
func (d *directory) isAlive(path string) bool {
	f, err := d.root.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	ok, err := lockWhole(f, backend.Shared)
	if !ok || err != nil {
		return true
	}
	_ = d.remove(path)
	unlockWhole(f)
	return false
}

// list returns the paths of all such files in dir, in order; owned is what they are called.
// What is no directory is not opened: to open a pipe waits for ever.
func (d *directory) list(dir string, owned *regexp.Regexp) ([]string, error) {
	info, err := d.root.Lstat(dir)
	if err == nil && !info.IsDir() {
		return nil, nil
	}
	f, err := d.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, systemError(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, systemError(err)
	}
	paths := make([]string, 0, len(entries))
	for _, entry := range entries {
		if entry.Type().IsRegular() && owned.MatchString(entry.Name()) {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}
