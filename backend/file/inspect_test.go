//go:build linux

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

func lockRequest(client, label string, mode backend.Mode) backend.Request {
	return backend.Request{Name: "lock", ID: backend.ID{Client: client, Seq: 1}, Label: label, Mode: mode, TTL: time.Second, Wait: true}
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	b, asks := newBackend(t, dir), newBackend(t, dir)
	inspect := func() backend.Snapshot {
		t.Helper()
		s, err := asks.Inspect(t.Context(), "lock")
		must(t, err)
		return s
	}
	if s := inspect(); s.Holders != nil || s.Waiters != nil {
		t.Errorf("nobody has been there: %+v", s)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("to look has left %v, %v", left, err)
	}

	began := time.Now()
	h, err := b.Acquire(t.Context(), lockRequest("a", "a label\nof 2 lines", backend.Exclusive))
	must(t, err)
	var waiters []chan *backend.Hold
	for i, mode := range []backend.Mode{backend.Shared, backend.Exclusive, backend.Shared} {
		got := make(chan *backend.Hold, 1)
		waiters = append(waiters, got)
		go func() {
			h, _ := newBackend(t, dir).Acquire(context.Background(), lockRequest("b", fmt.Sprint("waiter ", i), mode))
			got <- h
		}()
		waitForQueue(t, dir, i+1)
	}
	s := inspect()
	if len(s.Holders) != 1 || len(s.Waiters) != 3 {
		t.Fatalf("%+v", s)
	}
	p := s.Holders[0]
	since := p.Since
	p.Since = time.Time{}
	if want := (backend.Party{Label: "a label\nof 2 lines", Client: fmt.Sprintf("%d/a", os.Getpid()), Mode: backend.Exclusive, Entries: 1, Token: h.Token}); p != want {
		t.Errorf("holder %+v, want %+v", p, want)
	}
	for i, w := range s.Waiters {
		if w.Label != fmt.Sprint("waiter ", i) || w.Client != fmt.Sprintf("%d/b", os.Getpid()) {
			t.Errorf("waiter %d is %+v", i, w)
		}
		if w.Since.Before(since) {
			t.Errorf("waits since %v, which is before %v", w.Since, since)
		}
		since = w.Since
	}
	if since.Before(began) || s.Waiters[0].Mode != backend.Shared || s.Waiters[1].Mode != backend.Exclusive {
		t.Errorf("waiters %+v", s.Waiters)
	}

	if err := asks.Break(t.Context(), "lock", h.Token-1); !errors.Is(err, backend.ErrNotHeld) {
		t.Errorf("Break with another token: %v", err)
	}
	if err := asks.Break(t.Context(), "lock", h.Token); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("Break: %v", err)
	}

	must(t, b.Downgrade(t.Context(), h))
	reader := <-waiters[0]
	s = inspect()
	if len(s.Holders) != 2 || len(s.Waiters) != 2 || s.Holders[0].Label == "" || s.Holders[1].Label != "waiter 0" {
		t.Errorf("after a downgrade, with another reader: %+v", s)
	}
	for _, p := range s.Holders {
		if p.Mode != backend.Shared || p.Token != h.Token || !strings.HasPrefix(p.Client, fmt.Sprint(os.Getpid())) {
			t.Errorf("reader %+v", p)
		}
	}
	must(t, b.Release(t.Context(), h))
	must(t, asks.Release(t.Context(), reader))
	must(t, asks.Release(t.Context(), <-waiters[1]))
	must(t, asks.Release(t.Context(), <-waiters[2]))
	if s := inspect(); s.Holders != nil || s.Waiters != nil {
		t.Errorf("everybody has left: %+v", s)
	}
}

// Who was killed holds nothing, and another program that has the file is a holder.
func TestInspectProcesses(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	holder := start(t, "write", dir)
	token := holder.token()
	s, err := b.Inspect(t.Context(), "lock")
	must(t, err)
	if len(s.Holders) != 1 || s.Holders[0].Token != token || !strings.HasPrefix(s.Holders[0].Client, fmt.Sprint(holder.cmd.Process.Pid, "/")) {
		t.Errorf("held by %+v", s.Holders)
	}
	holder.signal(syscall.SIGKILL)
	eventually(t, "nobody holds it", func() bool {
		s, err := b.Inspect(t.Context(), "lock")
		must(t, err)
		return len(s.Holders) == 0
	})
	f, err := os.Open(filepath.Join(dir, "lock.lock"))
	must(t, err)
	defer f.Close()
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	if !seesForeignLocks {
		return
	}
	s, err = b.Inspect(t.Context(), "lock")
	must(t, err)
	if len(s.Holders) != 1 || s.Holders[0].Client != fmt.Sprint(os.Getpid()) || s.Holders[0].Token != 0 {
		t.Errorf("locked by flock: %+v", s.Holders)
	}
}

// Who has got the lock and has its place in the queue for a moment longer is no waiter.
func TestInspectHolderInQueue(t *testing.T) {
	dir := t.TempDir()
	b, asks := newBackend(t, dir), newBackend(t, dir)
	r := lockRequest("a", "", backend.Exclusive)
	h, err := b.Acquire(t.Context(), r)
	must(t, err)
	held := h.State.(*hold)
	at := time.Now().UnixNano()
	defer held.withdraw(held.publish(r, at))
	if ok, err := lockByte(held.lockFile, backend.Exclusive, at); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s, err := asks.Inspect(t.Context(), r.Name)
	must(t, err)
	if len(s.Holders) != 1 || len(s.Waiters) != 0 {
		t.Errorf("%+v", s)
	}
	unlockByte(held.lockFile, at)
}

func TestNamesInUse(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	long := strings.Repeat("n", 1000)
	var held []string
	for i, name := range []string{"jobs/1", "jobs/2", "other", "jobs/" + long, "jobs/free"} {
		r := lockRequest("a", "", backend.Exclusive)
		r.Name = name
		h, err := b.Acquire(t.Context(), r)
		must(t, err)
		if i == 4 {
			must(t, b.Release(t.Context(), h))
		} else if strings.HasPrefix(name, "jobs/") {
			held = append(held, name)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "jobs%2Fforeign.lock"), []byte("hello"), 0o600))
	var got []string
	for name, err := range b.Names(t.Context(), "jobs/") {
		must(t, err)
		got = append(got, name)
	}
	slices.Sort(got)
	slices.Sort(held)
	if !slices.Equal(got, held) {
		t.Errorf("names %.40q, want %.40q", got, held)
	}
	for range b.Names(t.Context(), "") {
		break
	}
	must(t, b.Close(t.Context()))
	for _, err := range b.Names(t.Context(), "") {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// The system tells of locks piece by piece: a writer may be there twice, or beside readers from before.
func TestWriterIsAloneInALongList(t *testing.T) {
	reader, writer := wholeLock{1, backend.Shared}, wholeLock{2, backend.Exclusive}
	for _, locks := range [][]wholeLock{{writer, writer}, {reader, writer}, {writer, reader}} {
		for _, held := range []bool{false, true} {
			all := state{held: held}.holdersOf(locks, nil)
			if len(all) != 1 || all[0].Mode != backend.Exclusive || all[0].Client != "2" {
				t.Errorf("%+v", all)
			}
		}
	}
}
