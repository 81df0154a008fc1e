//go:build !dlock_portable

package file

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A notifier tells waiters when somebody leaves a lock file. There is one in a
// process, while a Backend needs it: the kernel grants a user a hundred or so.
type notifier struct {
	fd   int
	file *os.File      // fd, for reading without blocking a thread
	done chan struct{} // closed when the reader has ended

	mu    sync.Mutex
	wakes map[int32]map[chan struct{}]struct{} // by watch
}

// watched are the events that can be somebody's turn, or the end of the file.
const watched = unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF

var common struct {
	sync.Mutex
	*notifier
	users int
}

// useNotifier returns the notifier of the process, nil if there is none to be
// had. Whoever got one gives it back with leaveNotifier.
func useNotifier() *notifier {
	common.Lock()
	defer common.Unlock()
	if common.notifier == nil {
		common.notifier = newNotifier()
	}
	if common.notifier != nil {
		common.users++
	}
	return common.notifier
}

func leaveNotifier() {
	common.Lock()
	defer common.Unlock()
	if common.users--; common.users == 0 {
		common.file.Close()
		<-common.done
		common.notifier = nil
	}
}

func newNotifier() *notifier {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	n := &notifier{
		fd:    fd,
		file:  os.NewFile(uintptr(fd), "inotify"),
		done:  make(chan struct{}),
		wakes: make(map[int32]map[chan struct{}]struct{}),
	}
	go n.run()
	return n
}

// watch sends to wake after each event of the open file f, until stop is called. It
// reports false if nothing can be heard of the file.
func (n *notifier) watch(f *os.File, wake chan struct{}) (stop func(), ok bool) {
	if n == nil {
		return func() {}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	wd, err := unix.InotifyAddWatch(n.fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), watched)
	if err != nil {
		return func() {}, false
	}
	if n.wakes[int32(wd)] == nil {
		n.wakes[int32(wd)] = make(map[chan struct{}]struct{})
	}
	n.wakes[int32(wd)][wake] = struct{}{}
	return func() { n.unwatch(int32(wd), wake) }, true
}

func (n *notifier) unwatch(wd int32, wake chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wakes[wd], wake)
	if len(n.wakes[wd]) == 0 {
		delete(n.wakes, wd)
		_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
	}
}

// run reads events until the notifier is closed.
func (n *notifier) run() {
	defer close(n.done)
	var buf [64 * unix.SizeofInotifyEvent]byte
	for {
		size, err := n.file.Read(buf[:])
		if err != nil {
			return
		}
		n.deliver(buf[:size])
	}
}

// deliver wakes those whom events concern: everybody, if events were dropped.
func (n *notifier) deliver(events []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[unsafe.Offsetof(unix.InotifyEvent{}.Mask):])
		size := binary.NativeEndian.Uint32(events[unsafe.Offsetof(unix.InotifyEvent{}.Len):])
		events = events[unix.SizeofInotifyEvent+size:]
		if mask&unix.IN_Q_OVERFLOW == 0 {
			wakeAll(n.wakes[wd])
			continue
		}
		for _, waiting := range n.wakes {
			wakeAll(waiting)
		}
	}
}

func wakeAll(waiting map[chan struct{}]struct{}) {
	for c := range waiting {
		wakeUp(c)
	}
}
