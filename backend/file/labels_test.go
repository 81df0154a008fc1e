//go:build linux

package file

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

func labelFilesIn(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, labelDirectory, "*"))
	must(t, err)
	return all
}

// A record is read as it was written, whatever it consists of and however long it is, also
// where another was before.
func TestRecords(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	must(t, err)
	defer d.leave()
	l, err := d.open("lock.lock", os.O_RDWR|os.O_CREATE)
	must(t, err)
	defer l.close()
	for round := range 3 {
		var places []place
		for n := range 200 {
			r := backend.Request{ID: backend.ID{Client: strings.Repeat("c", n%30)}, Label: strings.Repeat("\xff \n", (n+round*40)%86)}
			places = append(places, l.publish(r, int64(n)+firstPosition))
		}
		all := l.records()
		for n := range 200 {
			found := all[int64(n)+firstPosition]
			if len(found) != 1 || found[0].label != strings.Repeat("\xff \n", (n+round*40)%86) || found[0].client != strings.Repeat("c", n%30) || found[0].pid != os.Getpid() {
				t.Fatalf("record %d is %+v", n, found)
			}
		}
		for _, p := range places {
			l.withdraw(p)
		}
		if all := l.records(); len(all) > 0 {
			t.Fatalf("%d records stay", len(all))
		}
	}
	info, err := d.labels.file.Stat()
	must(t, err)
	if most := int64(600 * 1024); info.Size() > most {
		t.Errorf("the label file has %d bytes, more than %d: places are not used again", info.Size(), most)
	}
}

// A label file goes with its client, and with the next one who makes such a file if that
// client has died.
func TestLabelFilesEndWithTheirClient(t *testing.T) {
	dir := t.TempDir()
	a, b := newBackend(t, dir), newBackend(t, dir)
	h, err := a.Acquire(t.Context(), lockRequest("a", "", backend.Exclusive))
	must(t, err)
	dead := start(t, "write", dir)
	waitForQueue(t, dir, 1)
	eventually(t, "the label of the other process", func() bool { return len(labelFilesIn(t, dir)) == 1 })
	dead.signal(syscall.SIGKILL)
	waitForQueue(t, dir, 0)
	left := labelFilesIn(t, dir)
	if len(left) != 1 {
		t.Fatalf("who was killed has left %v", left)
	}
	granted := make(chan *backend.Hold, 1)
	go func() {
		h, _ := b.Acquire(context.Background(), lockRequest("b", "next", backend.Exclusive))
		granted <- h
	}()
	eventually(t, "the label of b", func() bool {
		s, err := a.Inspect(t.Context(), "lock")
		must(t, err)
		return len(s.Waiters) == 1 && s.Waiters[0].Label == "next"
	})
	if now := labelFilesIn(t, dir); len(now) != 1 || now[0] == left[0] {
		t.Errorf("there are %v, want that of b alone", now)
	}
	must(t, a.Release(t.Context(), h))
	must(t, b.Release(t.Context(), <-granted))
	must(t, b.Close(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, labelDirectory)); !os.IsNotExist(err) {
		t.Errorf("the directory of label files stays: %v", err)
	}
}

// A label file that is being made while others remove those of the dead is not lost.
func TestLabelFileIsNotTakenForOneOfTheDead(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	open := func() *directory {
		d, err := openDirectory(dir)
		must(t, err)
		return d
	}
	var done atomic.Bool
	var removers sync.WaitGroup
	for range 1 {
		d := open()
		removers.Go(func() {
			defer d.leave()
			for !done.Load() {
				d.removeDeadLabels()
			}
		})
	}
	lost := 0
	const files = 1500
	for range files {
		d := open()
		if d.labels.write(d, "1 2 3 4 client label").size > 0 && !d.isAt(d.labels.path, d.labels.file) {
			lost++
		}
		d.leave()
	}
	done.Store(true)
	removers.Wait()
	if lost > 0 {
		t.Errorf("%d of %d label files were removed while their owner lived", lost, files)
	}
}

// Of a reader who was killed nothing is told, although its label file says that it reads.
func TestReaderWhoDiedIsNotShown(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	h, err := b.Acquire(t.Context(), lockRequest("a", "first", backend.Shared))
	must(t, err)
	reader := start(t, "read", dir)
	reader.token()
	expect := func(want int) {
		t.Helper()
		s, err := b.Inspect(t.Context(), "lock")
		must(t, err)
		if len(s.Holders) != want {
			t.Errorf("%d readers are shown, want %d: %+v", len(s.Holders), want, s.Holders)
		}
	}
	expect(2)
	reader.signal(syscall.SIGKILL)
	eventually(t, "one lock", func() bool { return len(locksOf(h.State.(*hold).lockFile)) == 1 })
	if len(labelFilesIn(t, dir)) != 1 {
		t.Error("the label file of the dead is gone, and so the test says nothing")
	}
	expect(1)
	must(t, b.Release(t.Context(), h))
}

// Where no label can be written, locks go on without.
func TestLocksGoOnWithoutLabels(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, labelDirectory), nil, 0o600))
	c := newClients(t, dir, 2)
	first := mustLock(t, c[0].Mutex("lock"))
	next := lockLater(t.Context(), c[1].Mutex("lock"))
	waitForQueue(t, dir, 1)
	b := newBackend(t, dir)
	s, err := b.Inspect(t.Context(), "lock")
	must(t, err)
	if len(s.Waiters) != 1 || s.Waiters[0].Mode != backend.Exclusive || s.Waiters[0].Client != "" {
		t.Errorf("%+v", s)
	}
	mustUnlock(t, first)
	mustUnlock(t, next.get(t))
}

// Files of others where label files are stay as they are: also the directory may have been
// there before.
func TestForeignFilesAmongLabels(t *testing.T) {
	dir := t.TempDir()
	labels := filepath.Join(dir, labelDirectory)
	must(t, os.Mkdir(labels, 0o700))
	for _, name := range []string{"notes", "join", "1.txt", "1.ABCDEFG", "x.ABCDEFGH", "1.ABCDEFGH.old"} {
		must(t, os.WriteFile(filepath.Join(labels, name), []byte("somebody's"), 0o600))
	}
	must(t, os.Mkdir(filepath.Join(labels, "2.ABCDEFGH"), 0o700))
	must(t, syscall.Mkfifo(filepath.Join(labels, "3.ABCDEFGH"), 0o600))
	must(t, os.Symlink("notes", filepath.Join(labels, "4.ABCDEFGH")))
	before := labelFilesIn(t, dir)
	showsWhoWaits(t, dir, "next")
	if after := labelFilesIn(t, dir); !slices.Equal(after, before) {
		t.Errorf("of %v there is left %v", before, after)
	}
}

// A pipe where the directory of label files would be is not opened: that waits for ever.
func TestPipeInPlaceOfLabels(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, labelDirectory)
	must(t, syscall.Mkfifo(pipe, 0o600))
	hung := time.AfterFunc(limit, func() { // whoever reads goes on when somebody writes
		t.Error("it hangs")
		f, _ := os.OpenFile(pipe, os.O_RDWR, 0)
		defer f.Close()
		<-t.Context().Done()
	})
	defer hung.Stop()
	showsWhoWaits(t, dir, "")
}

// showsWhoWaits has somebody wait for a lock and leave, and looks for the label.
func showsWhoWaits(t *testing.T, dir, label string) {
	t.Helper()
	a, b := newBackend(t, dir), newBackend(t, dir)
	h, err := a.Acquire(t.Context(), lockRequest("a", "", backend.Exclusive))
	must(t, err)
	granted := make(chan *backend.Hold, 1)
	go func() {
		h, _ := b.Acquire(context.Background(), lockRequest("b", "next", backend.Exclusive))
		granted <- h
	}()
	waitForQueue(t, dir, 1)
	eventually(t, "the label of who waits", func() bool {
		s, err := a.Inspect(t.Context(), "lock")
		must(t, err)
		return len(s.Waiters) == 1 && s.Waiters[0].Label == label
	})
	must(t, a.Release(t.Context(), h))
	must(t, b.Release(t.Context(), <-granted))
	must(t, a.Close(t.Context()))
	must(t, b.Close(t.Context()))
}
