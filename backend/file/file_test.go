//go:build linux

package file

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/dlock-go/dlock"
)

func TestCloseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	_ = openFiles(t) // the runtime's own poller stays
	useNotifier()
	leaveNotifier()
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 3 {
		c := newClients(t, dir, 3)
		_ = mustLock(t, c[0].Mutex("lock"))
		_ = mustLock(t, c[0].RWMutex("other").RLocker())
		var calls []*call
		for i, c := range c[1:] {
			calls = append(calls, lockLater(t.Context(), c.Mutex("lock")))
			waitForQueue(t, dir, i+1)
		}
		for _, c := range c[1:] {
			must(t, c.Close(t.Context()))
		}
		for _, call := range calls {
			if <-call.done; !errors.Is(call.err, dlock.ErrClosed) {
				t.Errorf("waiter of a closed client: %v", call.err)
			}
		}
		must(t, c[0].Close(t.Context()))
		must(t, c[0].Close(t.Context()))
		if n := queue(t, dir); n != 0 {
			t.Errorf("%d left in the queue", n)
		}
	}
	eventually(t, "files and goroutines as before", func() bool {
		return openFiles(t) == files && runtime.NumGoroutine() <= goroutines
	})
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(fds)
}

func TestURLs(t *testing.T) {
	for _, url := range []string{"file:///", "file://host/dir", "file://user@/dir", "file:///tmp", "file:///a/b?mode=1"} {
		if _, err := dlock.Open(t.Context(), url, nil); !errors.Is(err, dlock.ErrInvalidConfig) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
