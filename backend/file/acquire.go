package file

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A hold is a lock that is held, by the lock of the whole file and by that of byte 0.
type hold struct {
	*lockFile
	request backend.Request
	token   uint64 // with which it began
	since   time.Time
	joined  bool  // other readers, who had the lock before
	label   place // of what is published of who has joined

	// The file says limit while an exclusive hold lasts, so that its holder can give
	// out tokens without a word to the file, whatever becomes of it.
	last  atomic.Uint64 // the last token given out
	limit atomic.Uint64 // 0: no more can be given out

	mu      sync.Mutex
	skipped int64 // as content's
	over    bool
	wanted  bool // the holder knows that somebody waits
}

// Acquire implements backend.Backend.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (*backend.Hold, error) {
	ctx, end, err := b.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	pauses := backend.Backoff{Min: time.Millisecond, Max: longestBlind}
	for {
		h, err := b.acquire(ctx, r)
		switch {
		case err == nil:
			return b.addHold(r, h), nil
		case !errors.Is(err, errReplaced): // else somebody tidied up
			return nil, err
		case !backend.Sleep(ctx, pauses.Next()):
			return nil, backend.WaitEnded(ctx, false)
		}
	}
}

// acquire asks for the lock once, on the file that is there now. It reports errReplaced if
// that is not there any more, and a system that finds no file in a directory that is still
// there for what it is.
func (b *Backend) acquire(ctx context.Context, r backend.Request) (*hold, error) {
	dir, err := b.currentDirectory()
	if err != nil {
		return nil, err
	}
	defer dir.leave()
	h, err := b.acquireIn(ctx, dir, r)
	return h, dir.replacedOr(err)
}

func (b *Backend) acquireIn(ctx context.Context, dir *directory, r backend.Request) (*hold, error) {
	name := dir.fileName(r.Name)
	if !r.Wait {
		if busy, err := dir.isBusy(name, r.Mode); busy || err != nil {
			return nil, cmp.Or(err, backend.ErrHeld)
		}
	}
	l, err := dir.open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	busy, err := l.isBusy(r.Mode)
	if !busy && err == nil {
		var h *hold
		if h, err = l.tryLock(ctx, r); h != nil {
			return h, nil
		}
	}
	if r.Wait && err == errJoining {
		err = nil
	}
	if err != nil || !r.Wait {
		l.close()
		return nil, cmp.Or(err, backend.ErrHeld)
	}
	r.Queued()
	return b.wait(ctx, newWaiter(l, r))
}

// tryLock takes the lock if it is free. A nil hold means that it is held. A try on a
// held lock can get in the way of others: ask isHeld before.
func (l *lockFile) tryLock(ctx context.Context, r backend.Request) (*hold, error) {
	h := &hold{lockFile: l, request: r, since: time.Now()}
	ok, err := lockWhole(l.file, r.Mode)
	if ok {
		ok, err = h.mark(ctx, r.Mode)
	}
	if !ok {
		unlockWhole(l.file)
		return nil, err
	}
	if h.joined { // not before, while others wait to join
		h.label = h.publish(r, heldByte)
	}
	return h, nil
}

// mark locks byte 0 and gives the hold its token, if the path still names the file.
// The file is locked as a whole. Byte 0 may be refused even so: of one who dies the
// two locks end one after the other.
func (h *hold) mark(ctx context.Context, mode backend.Mode) (ok bool, err error) {
	if err = h.checkCurrent(); err != nil {
		return false, err
	}
	newToken := func() error { return h.newToken(reserve) }
	if mode == backend.Shared {
		if ok, err = h.lockJoinByte(ctx); !ok {
			return false, err
		}
		defer unlockByte(h.lockFile, joinByte)
		newToken = h.phaseToken
	}
	if ok, err = lockByte(h.lockFile, mode, heldByte); !ok {
		return false, err
	}
	if err = newToken(); err != nil {
		unlockByte(h.lockFile, heldByte)
	}
	return err == nil, err
}

// lockJoinByte makes it this reader's turn to find out whether it joins readers, or
// begins a phase of readers. Readers have the byte for some microseconds, so that a
// pause is enough; whoever is stopped with it does not stop the others in here. It reports
// errJoining then: nobody holds the lock who keeps readers out.
func (h *hold) lockJoinByte(ctx context.Context) (ok bool, err error) {
	for limit := time.Now().Add(joinTimeout); ; {
		ok, err = lockByte(h.lockFile, backend.Exclusive, joinByte)
		switch {
		case ok || err != nil:
			return ok, err
		case ctx.Err() != nil:
			return false, backend.WaitEnded(ctx, false)
		case time.Now().After(limit):
			return false, errJoining
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// addHold describes what was granted. It lasts as long as the process.
func (b *Backend) addHold(r backend.Request, h *hold) *backend.Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds[h] = struct{}{}
	return &backend.Hold{Request: r, Token: h.token, Sent: h.since, TellsWanted: !r.Fixed, State: h}
}
