package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Ping implements backend.Pinger: there is a directory that can be used. It has no
// version.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	return "", b.withDirectory(ctx, func(*directory) error { return nil })
}

// Inspect implements backend.Inspector. A party's Client is its process, a slash and
// its client. A token is the one with which the process has got
// the lock: it may have passed the lock on within itself since. Another program that
// has locked the file with flock(2) is a holder without a token.
func (b *Backend) Inspect(ctx context.Context, name string) (s backend.Snapshot, err error) {
	err = b.withDirectory(ctx, func(dir *directory) (err error) {
		s, err = dir.inspect(name)
		return err
	})
	return s, err
}

func (d *directory) inspect(name string) (s backend.Snapshot, err error) {
	l, err := d.open(d.fileName(name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer l.close()
	for range looks {
		before, err := l.state()
		if err != nil {
			return s, err
		}
		if s, err = l.parties(before); err != nil {
			return s, err
		}
		if after, err := l.state(); err != nil || after == before {
			return s, err
		}
	}
	return s, nil // of a lock that changes hands all the time
}

// looks is how often a lock is looked at until it does not change hands meanwhile.
const looks = 20

// A state is what changes when somebody gets the lock, but for a reader who joins others.
type state struct {
	content
	owner
	exclusive, held bool
}

func (l *lockFile) state() (st state, err error) {
	var errs [3]error
	st.content, errs[0] = l.read()
	st.owner = l.readOwner()
	st.exclusive, errs[1] = l.isHeld(backend.Shared)
	st.held, errs[2] = l.isHeld(backend.Exclusive)
	return st, errors.Join(errs[:]...)
}

// parties returns who holds the lock and who waits for it.
func (l *lockFile) parties(st state) (s backend.Snapshot, err error) {
	records := l.records()
	s.Holders = l.holders(st, records[heldByte])
	told := func(w backend.Party) bool { // who has the lock, and has not left the queue yet
		return w.Client != "" && slices.ContainsFunc(s.Holders, func(h backend.Party) bool { return h.Client == w.Client && h.Label == w.Label })
	}
	err = l.eachWaiter(st.firstInQueue(), lastPosition, func(at int64, mode backend.Mode) {
		s.Waiters = append(s.Waiters, slices.DeleteFunc(waitersAt(at, mode, records[at]), told)...)
	})
	return s, err
}

// Names implements backend.Inspector. A name that is too long for the name of a file, whose
// case the file system does not keep, or that Windows does not allow, is known while the
// lock is held.
func (b *Backend) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := b.names(ctx, prefix, func(name string) bool { return yield(name, nil) }); err != nil {
			yield("", err)
		}
	}
}

// names calls do with each name that is in use, until it reports false.
func (b *Backend) names(ctx context.Context, prefix string, do func(string) bool) error {
	_, end, err := b.calls.Begin(ctx)
	if err != nil {
		return err
	}
	dir, err := b.currentDirectory()
	end() // do may close the backend
	if err != nil {
		return err
	}
	defer dir.leave()
	list, err := dir.root.Open(".")
	if err != nil {
		return systemError(err)
	}
	defer list.Close()
	for {
		page, err := list.ReadDir(1000)
		backend.Progress(ctx)
		for _, entry := range page {
			switch name, used := dir.nameInUse(entry); {
			case ctx.Err() != nil:
				return backend.WaitEnded(ctx, false)
			case b.calls.Err() != nil:
				return backend.ErrClosed
			case used && strings.HasPrefix(name, prefix) && !do(name):
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return systemError(err)
		}
	}
}

// nameInUse returns the name whose lock is held or waited for in a file.
func (d *directory) nameInUse(entry fs.DirEntry) (name string, used bool) {
	base, ok := strings.CutSuffix(entry.Name(), ".lock")
	if !ok || !entry.Type().IsRegular() {
		return "", false
	}
	l, err := d.open(entry.Name(), os.O_RDONLY)
	if err != nil {
		return "", false // not a lock, or deleted meanwhile
	}
	defer l.close()
	if busy, err := l.isBusy(backend.Exclusive); !busy || err != nil {
		return "", false
	}
	if name, ok := backend.DecodeName(base); ok {
		return name, true
	}
	name = l.readOwner().name
	return name, name != "" && d.fileName(name) == entry.Name()
}

// Break implements backend.Breaker. It always fails: only the end of its process takes
// a lock away. The error says which process has it.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	s, err := b.Inspect(ctx, name)
	if err != nil {
		return err
	}
	for _, h := range s.Holders {
		if h.Token == token {
			process, _, _ := strings.Cut(h.Client, "/")
			return backend.Fail(backend.ErrUnsupported, fmt.Errorf("the lock lasts as long as process %s, which holds it", process))
		}
	}
	return backend.ErrNotHeld
}

// A wholeLock is a lock of a whole lock file, of whatever program.
type wholeLock struct {
	pid  int
	mode backend.Mode
}

// holders returns those who hold the lock in a state, and joined of readers who have joined others.
func (l *lockFile) holders(st state, joined []record) (holders []backend.Party) {
	if st.exclusive {
		p := st.owner.party()
		p.Mode = backend.Exclusive
		return []backend.Party{p}
	}
	return st.holdersOf(locksOf(l), joined)
}

// holdersOf returns those who hold the lock where no writer does that says so, by the locks of the whole file.
func (st state) holdersOf(locks []wholeLock, joined []record) (holders []backend.Party) {
	o, shared := st.owner, st.held
	if !shared {
		joined = nil
	}
	readers := make(map[int]int) // records by process
	for _, r := range joined {
		readers[r.pid]++
	}
	for _, w := range locks {
		if shared && readers[w.pid] > 0 {
			readers[w.pid]--
			continue
		}
		p := backend.Party{Client: strconv.Itoa(w.pid), Mode: w.mode, Entries: 1}
		if shared && o.pid == w.pid {
			p, o = o.party(), owner{}
			p.Mode = w.mode
		}
		if shared {
			p.Token = st.content.token
		}
		if w.mode == backend.Exclusive {
			return []backend.Party{p} // it is alone: the list is read piece by piece, and may show more, of other moments
		}
		holders = append(holders, p)
	}
	for _, r := range joined {
		p := r.party(backend.Shared)
		p.Entries, p.Token = 1, st.content.token
		if !slices.ContainsFunc(holders, func(h backend.Party) bool { return h.Client == p.Client && h.Label == p.Label }) { // it has left, and joined anew
			holders = append(holders, p)
		}
	}
	if shared && len(holders) == 0 {
		holders = []backend.Party{{Mode: backend.Shared, Entries: 1, Token: st.content.token}}
	}
	return holders
}

// eachWaiter calls do with the positions from first to last at which somebody waits, in
// their order, and for which mode.
func (l *lockFile) eachWaiter(first, last int64, do func(at int64, mode backend.Mode)) error {
	at, length, err := findLock(l, backend.Exclusive, first, last)
	if length == 0 || err != nil {
		return err
	}
	if err := l.eachWaiter(first, at-1, do); err != nil {
		return err
	}
	if length > 1 {
		return nil // of another program, to the end perhaps
	}
	_, exclusive, err := findLock(l, backend.Shared, at, at)
	if err != nil {
		return err
	}
	mode := backend.Shared
	if exclusive > 0 {
		mode = backend.Exclusive
	}
	do(at, mode)
	return l.eachWaiter(at+1, last, do)
}

// waitersAt returns who waits at a position: readers may have the same.
func waitersAt(at int64, mode backend.Mode, published []record) (waiters []backend.Party) {
	for _, r := range published {
		waiters = append(waiters, r.party(mode))
	}
	if len(waiters) == 0 {
		waiters = []backend.Party{{Mode: mode}}
	}
	for i := range waiters {
		waiters[i].Since = time.Unix(0, at)
	}
	return waiters
}

// An owner is who has got the lock last, as the file says in its second line.
type owner struct {
	pid                 int
	client, label, name string
	token               uint64
	since               int64 // ns since 1970
}

func (h *hold) owner() owner {
	r := h.request
	return owner{os.Getpid(), r.ID.Client, r.Label, r.Name, h.token, h.since.UnixNano()}
}

func (o owner) text() string {
	return fmt.Sprintf("%s%d %d %d %s %s %s\n", ownerPrefix, o.pid, o.token, o.since,
		backend.EncodeName(o.client), backend.EncodeName(o.label), backend.EncodeName(o.name))
}

func (o owner) party() backend.Party {
	p := backend.Party{Label: o.label, Entries: 1, Token: o.token}
	if o.pid != 0 {
		p.Client, p.Since = fmt.Sprintf("%d/%s", o.pid, o.client), time.Unix(0, o.since)
	}
	return p
}

// readOwner returns what the second line says: nothing, if it is damaged or being
// written.
func (l *lockFile) readOwner() (o owner) {
	var buf [8192]byte
	n, _ := l.file.ReadAt(buf[:], int64(contentLength))
	line, _, ok := strings.Cut(string(buf[:n]), "\n")
	line, ok2 := strings.CutPrefix(line, ownerPrefix)
	fields := strings.Split(line, " ")
	if !ok || !ok2 || len(fields) != 6 {
		return owner{}
	}
	var errs [3]error
	var oks [3]bool
	o.pid, errs[0] = strconv.Atoi(fields[0])
	o.token, errs[1] = strconv.ParseUint(fields[1], 10, 64)
	o.since, errs[2] = strconv.ParseInt(fields[2], 10, 64)
	o.client, oks[0] = backend.DecodeName(fields[3])
	o.label, oks[1] = backend.DecodeName(fields[4])
	o.name, oks[2] = backend.DecodeName(fields[5])
	if errors.Join(errs[:]...) != nil || oks != [3]bool{true, true, true} {
		return owner{}
	}
	return o
}
