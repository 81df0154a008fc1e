package file

import (
	"errors"
	"fmt"
	"os"
	"regexp"
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

// labelFiles are the names of label files: the process, and something random.
var labelFiles = regexp.MustCompile(`^[0-9]+\.[A-Z2-7]{8}$`)

// placeUnit is what the size of each place is a multiple of.
const placeUnit = 64

// A labelFile is that of one Backend. The zero value is one that is not there yet.
type labelFile struct {
	mu   sync.Mutex
	path string // in the directory
	file *os.File
	end  int64           // of the last place
	free map[int][]place // by size
}

// A place is where one record is. The zero value is none.
type place struct {
	at   int64
	size int
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
	if p.size == 0 {
		return
	}
	f := &l.dir.labels
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_, _ = f.file.WriteAt([]byte("-"), p.at)
		f.free[p.size] = append(f.free[p.size], p)
	}
}

// write writes a record to a free place.
func (f *labelFile) write(d *directory, text string) place {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil && !f.create(d) {
		return place{}
	}
	p := place{f.end, ((len(text)+1)/placeUnit + 1) * placeUnit} // at least one space ends the text
	if list := f.free[p.size]; len(list) > 0 {
		p, f.free[p.size] = list[len(list)-1], list[:len(list)-1]
	}
	line := []byte(text + strings.Repeat(" ", p.size-len(text)-1) + "\n")
	if _, err := f.file.WriteAt(line, p.at); err != nil {
		return place{}
	}
	f.end = max(f.end, p.at+int64(len(line)))
	return p
}

// create makes the file, and removes those of the dead. It reports false if that fails.
func (f *labelFile) create(d *directory) bool {
	path, file, err := d.makeLocked(labelDirectory, fmt.Sprintf("%d.", os.Getpid()))
	if err != nil {
		return false
	}
	f.path, f.file, f.end, f.free = path, file, 0, make(map[int][]place)
	d.removeDeadLabels()
	return true
}

// removeDeadLabels removes the label files of those who are gone.
func (d *directory) removeDeadLabels() {
	paths, _ := d.list(labelDirectory, labelFiles)
	for _, path := range paths {
		d.isAlive(path)
	}
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

// records returns what all label files say of l, by the byte that is locked.
func (l *lockFile) records() map[int64][]record {
	id, err := fileID(l.file, l.info)
	if err != nil {
		return nil
	}
	all := make(map[int64][]record)
	prefix := strconv.FormatUint(id, 10) + " "
	paths, _ := l.dir.list(labelDirectory, labelFiles)
	for _, path := range paths {
		l.dir.readLabels(path, prefix, all)
	}
	return all
}

// readLabels adds to all the records of one label file that begin with prefix.
func (d *directory) readLabels(path, prefix string, all map[int64][]record) {
	text, _ := d.root.ReadFile(path)
	var looked, lives bool
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		r, ok := parseRecord(line)
		if ok && r.at == heldByte && !looked {
			looked, lives = true, d.isAlive(path)
		}
		if ok && (lives || r.at != heldByte) {
			all[r.at] = append(all[r.at], r)
		}
	}
}
