//go:build linux

package file

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestProcessesExclude(t *testing.T) {
	const processes = 4
	dir := t.TempDir()
	var all []*process
	for range processes {
		all = append(all, start(t, "count", dir))
	}
	for _, p := range all {
		for line := range p.lines {
			t.Error(line)
		}
	}
	if n, err := readCount(dir); n != processes*counts {
		t.Errorf("counted to %d: %v", n, err)
	}
}

func TestHolderKilled(t *testing.T) {
	for _, role := range []string{"write", "read"} {
		t.Run(role, func(t *testing.T) {
			dir := t.TempDir()
			holder := start(t, role, dir)
			before := holder.token()
			call := lockLater(t.Context(), newClient(t, dir).Mutex("lock"))
			waitForQueue(t, dir, 1)
			holder.signal(syscall.SIGKILL)
			lease := call.get(t)
			if lease.Token() <= before {
				t.Errorf("token %d after %d", lease.Token(), before)
			}
			mustUnlock(t, lease)
		})
	}
}

func TestQueuedProcessKilled(t *testing.T) {
	dir := t.TempDir()
	holder := start(t, "write", dir)
	holder.token()
	middle := start(t, "write", dir)
	waitForQueue(t, dir, 1)
	last := start(t, "write", dir)
	waitForQueue(t, dir, 2)
	middle.signal(syscall.SIGKILL)
	waitForQueue(t, dir, 1)
	select {
	case line := <-last.lines:
		t.Fatalf("entered before the holder left: %s", line)
	default:
	}
	holder.unlock()
	last.token()
}

func TestQueuedProcessStopped(t *testing.T) {
	for _, role := range []string{"write", "read"} {
		t.Run(role, func(t *testing.T) {
			dir := t.TempDir()
			c := newClients(t, dir, 2)
			lease := mustLock(t, c[0].Mutex("lock"))
			stopped := start(t, role, dir)
			waitForQueue(t, dir, 1)
			stopped.stop()
			call := lockLater(t.Context(), c[1].Mutex("lock"))
			waitForQueue(t, dir, 2)
			mustUnlock(t, lease)
			next := call.get(t)

			stopped.signal(syscall.SIGCONT)
			waitForQueue(t, dir, 1)
			select {
			case line := <-stopped.lines:
				t.Fatalf("entered a held lock: %s", line)
			default:
			}
			mustUnlock(t, next)
			if token := stopped.token(); token <= next.Token() {
				t.Errorf("token %d after %d", token, next.Token())
			}
		})
	}
}

func TestTokensGrowOverProcesses(t *testing.T) {
	dir := t.TempDir()
	var last uint64
	for i, role := range []string{"write", "read", "write", "write", "read", "read"} {
		if i == 3 {
			must(t, os.Remove(filepath.Join(dir, "lock.lock")))
		}
		p := start(t, role, dir)
		if token := p.token(); token <= last {
			t.Errorf("token %d after %d", token, last)
		} else {
			last = token
		}
		p.unlock()
		for range p.lines {
		}
	}
}

func TestReadersOfManyProcessesShare(t *testing.T) {
	dir := t.TempDir()
	writer := mustLock(t, newClient(t, dir).Mutex("lock"))
	var readers []*process
	for i := range 3 {
		readers = append(readers, start(t, "read", dir))
		waitForQueue(t, dir, i+1)
	}
	mustUnlock(t, writer)
	first := readers[0].token()
	for _, r := range readers[1:] {
		if token := r.token(); token != first {
			t.Errorf("tokens %d and %d in one phase", first, token)
		}
	}
}
