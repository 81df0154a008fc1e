package file

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// The kernel knows where in a queue somebody waits, and which readers share a lock, but
// not who they are. That is for people to read, and stands in a label file, which each
// Backend that waits or joins readers has, and keeps locked as a whole while it lives. A
// place in it, of 64 bytes or a multiple, has one record:
//
//	number of the lock file, byte that is locked, process, since when, client, label
//
// and spaces up to the end of the line. Nothing depends on a record: one that cannot be
// written, or be read, is missing in Inspect alone. Of waiters only those records count
// whose byte is locked; of readers only those in a label file whose owner lives.

// labelDirectory is where the label files are.
const labelDirectory = "labels"

// leastPlace is the size of the smallest places; those of each class are twice as large
// as those of the class before.
const leastPlace = 64

// A labelFile is that of one Backend. The zero value is one that is not there yet.
type labelFile struct {
	mu   sync.Mutex
	path string // in the directory
	file *os.File
	end  int64           // of the last place
	free map[int][]place // by class
}

// A place is where one record is. The zero value is none.
type place struct {
	at    int64
	class int
	used  bool
}

// A record is what a label file says of one request.
type record struct {
	lock   uint64 // number of the lock file
	at     int64  // the byte that is locked: heldByte, or a position in the queue
	pid    int
	since  int64 // ns since 1970
	client string
	label  string
}

func (r record) text() string {
	return fmt.Sprintf("%d %d %d %d %s %s", r.lock, r.at, r.pid, r.since, backend.EncodeName(r.client), backend.EncodeName(r.label))
}

func parseRecord(line string) (r record, ok bool) {
	fields := strings.SplitN(line, " ", 7) // the last one is the rest of the place
	if len(fields) < 7 {
		return r, false
	}
	var errs [4]error
	r.lock, errs[0] = strconv.ParseUint(fields[0], 10, 64)
	r.at, errs[1] = strconv.ParseInt(fields[1], 10, 64)
	r.pid, errs[2] = strconv.Atoi(fields[2])
	r.since, errs[3] = strconv.ParseInt(fields[3], 10, 64)
	client, ok := backend.DecodeName(fields[4])
	label, ok2 := backend.DecodeName(fields[5])
	r.client, r.label = client, label
	return r, ok && ok2 && errors.Join(errs[:]...) == nil
}

// party returns a holder or waiter of that mode.
func (r record) party(mode backend.Mode) backend.Party {
	return backend.Party{Label: r.label, Client: fmt.Sprintf("%d/%s", r.pid, r.client), Mode: mode, Since: time.Unix(0, r.since)}
}

// publish says in the label file of the directory that r has locked the byte at of l.
func (l *lockFile) publish(r backend.Request, at int64) place {
	id, err := fileID(l.file, l.info)
	if err != nil {
		return place{}
	}
	text := record{id, at, os.Getpid(), time.Now().UnixNano(), r.ID.Client, r.Label}.text()
	return l.dir.labels.write(l.dir, text)
}

// withdraw takes back what publish has said.
func (l *lockFile) withdraw(p place) {
	if !p.used {
		return
	}
	f := &l.dir.labels
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_, _ = f.file.WriteAt([]byte("-"), p.at)
		f.free[p.class] = append(f.free[p.class], p)
	}
}

// write writes a record to a free place.
func (f *labelFile) write(d *directory, text string) place {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil && !f.create(d) {
		return place{}
	}
	class := bits.Len(uint((len(text) + len(" \n") - 1) / leastPlace))
	p := place{at: f.end, class: class, used: true}
	line := bytes.Repeat([]byte(" "), leastPlace<<class)
	copy(line, text)
	line[len(line)-1] = '\n'
	list := f.free[class]
	if n := len(list); n > 0 {
		p, f.free[class] = list[n-1], list[:n-1]
	}
	if _, err := f.file.WriteAt(line, p.at); err != nil {
		return place{}
	}
	f.end = max(f.end, p.at+int64(len(line)))
	return p
}

// create makes the file, and removes those of the dead. It reports false if that fails.
func (f *labelFile) create(d *directory) bool {
	for range maxLabelTries {
		path := filepath.Join(labelDirectory, fmt.Sprintf("%d.%s", os.Getpid(), rand.Text()[:8]))
		file, err := d.root.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			err = d.root.Mkdir(labelDirectory, 0o700)
			if err == nil || errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return false
		}
		ok, err := lockWhole(file, backend.Exclusive)
		if ok && d.isAt(path, file) {
			f.path, f.file, f.end, f.free = path, file, 0, make(map[int][]place)
			d.removeDeadLabels()
			return true
		}
		_ = file.Close()
		if err != nil {
			return false
		}
	}
	return false
}

// maxLabelTries bounds how often a label file is made anew that others took for one of
// the dead before it was locked.
const maxLabelTries = 100

// isAt reports whether a path leads to that file.
func (d *directory) isAt(path string, file *os.File) bool {
	info, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := d.root.Lstat(path)
	return err == nil && os.SameFile(info, there)
}

// removeDeadLabels removes the label files of those who are gone. It has each of them
// locked meanwhile: one that has just been made is not locked yet, and its owner, who does
// not get the lock, makes another.
func (d *directory) removeDeadLabels() {
	for _, path := range d.labelFiles() {
		f, err := d.root.Open(path)
		if err != nil {
			continue
		}
		if ok, err := lockWhole(f, backend.Shared); ok && err == nil {
			_ = d.remove(path)
			unlockWhole(f)
		}
		_ = f.Close()
	}
}

// isLockedWhole reports whether another has f locked as a whole.
func isLockedWhole(f *os.File) bool {
	ok, err := lockWhole(f, backend.Shared)
	if ok {
		unlockWhole(f)
	}
	return !ok || err != nil
}

// close removes the file, and the last one the directory of all of them.
func (f *labelFile) close(d *directory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return
	}
	err := d.remove(f.path)
	_ = f.file.Close()
	if err != nil { // an open file cannot be removed on Windows
		_ = d.remove(f.path)
	}
	_ = d.remove(labelDirectory)
	f.file = nil
}

func (d *directory) labelFiles() (paths []string) {
	list, err := d.root.Open(labelDirectory)
	if err != nil {
		return nil
	}
	defer list.Close()
	names, _ := list.Readdirnames(-1)
	for _, name := range names {
		paths = append(paths, filepath.Join(labelDirectory, name))
	}
	return paths
}

// records returns what all label files say of l, by the byte that is locked.
func (l *lockFile) records() map[int64][]record {
	id, err := fileID(l.file, l.info)
	if err != nil {
		return nil
	}
	all := make(map[int64][]record)
	prefix := strconv.FormatUint(id, 10) + " "
	for _, path := range l.dir.labelFiles() {
		l.dir.readLabels(path, prefix, all)
	}
	return all
}

// readLabels adds to all the records of one label file that begin with prefix.
func (d *directory) readLabels(path, prefix string, all map[int64][]record) {
	f, err := d.root.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	text, _ := d.root.ReadFile(path)
	var looked, lives bool
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		r, ok := parseRecord(line)
		if ok && r.at == heldByte && !looked {
			looked, lives = true, isLockedWhole(f)
		}
		if ok && (lives || r.at != heldByte) {
			all[r.at] = append(all[r.at], r)
		}
	}
}
