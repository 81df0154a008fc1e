package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
)

// alone reports whether the backend lives in one process.
func (s *scenario) alone() bool {
	s.Helper()
	return s.unable(s.URL == "", "URL")
}

// strangers checks, for a backend that lives in one process, that its locks mean
// nothing to another.
func (s *scenario) strangers() {
	s.URL = s.Scheme + "://"
	lease := s.locked(s.open().Mutex(s.name))
	p := s.process()
	p.do("open", s.TTL)
	p.do("try", "h", s.name, "exclusive")
	p.kill()
	s.alive(lease)
	s.unlock(lease)
}

// opened starts a process with an open client.
func (s *scenario) opened() *process {
	s.Helper()
	p := s.process()
	p.do("open", s.TTL)
	return p
}

// exclusionProcesses has processes sell from one stock.
func exclusionProcesses(s *scenario) {
	if s.URL == "" {
		s.strangers()
		return
	}
	const processes, sales = 4, 25
	file := filepath.Join(s.TempDir(), "sold")
	s.ok(os.WriteFile(file, []byte("0"), 0o600))
	var calls []<-chan answer
	var all []*process
	for range processes {
		p := s.opened()
		all = append(all, p)
		calls = append(calls, p.send("sell", s.name, file, sales))
	}
	var sold []interval
	for i, p := range all {
		a := p.wait(calls[i])
		s.ok(a.err)
		sold = append(sold, parseIntervals(a.result)...)
	}
	s.must(len(sold) == processes*sales, "%d sales", len(sold))
	slices.SortFunc(sold, func(a, b interval) int { return int(a.start - b.start) })
	for i, sale := range sold[1:] {
		s.must(sale.start >= sold[i].end, "two holders overlap by %d ns", sold[i].end-sale.start)
		s.must(sale.token > sold[i].token, "token %d came after %d", sale.token, sold[i].token)
	}
	text, err := os.ReadFile(file)
	s.ok(err)
	s.must(string(text) == strconv.Itoa(processes*sales), "the file says %s", text)
}

type interval struct {
	start, end int64
	token      uint64
}

func parseIntervals(text string) []interval {
	var out []interval
	for _, part := range strings.Split(text, ",") {
		var v interval
		if _, err := fmt.Sscanf(part, "%d-%d-%d", &v.start, &v.end, &v.token); err == nil {
			out = append(out, v)
		}
	}
	return out
}

func crashHolderKilled(s *scenario) { s.crash((*process).kill) }

func crashHolderExits(s *scenario) {
	s.crash(func(p *process) { p.send("exit"); <-p.gone })
}

func (s *scenario) crash(end func(*process)) {
	if s.alone() {
		return
	}
	p := s.opened()
	p.do("lock", "h", s.name, "exclusive")
	next := s.queue(s.open().Mutex(s.name), s.name, 1)
	next.waits("a held lock was granted")
	end(p)
	start := time.Now()
	lease := next.granted()
	s.Logf("granted %v after the holder's end, TTL %v", time.Since(start), s.TTL)
	s.unlock(lease)
}

// crashMinHold ends a process that has unlocked before its least hold was over: a server
// that can keep a hold by itself keeps it for the rest, and no longer.
func crashMinHold(s *scenario) {
	if s.alone() || s.na(!slices.Contains(s.Optional, "Expirer"), "a hold ends with its process") {
		return
	}
	p, next := s.opened(), s.open().Mutex(s.name)
	hold := 2 * s.TTL
	start := time.Now()
	p.do("minhold", "h", s.name, hold)
	p.do("unlock", "h")
	p.kill()
	s.held(next)
	s.freed(next)
	s.must(time.Since(start) >= hold-hold/50, "free after %v, want %v at least", time.Since(start), hold)
}

// crashReaderKilled kills a reader while others come and go: a writer gets in
// all the same.
func crashReaderKilled(s *scenario) {
	s.needs(Readers)
	if s.alone() {
		return
	}
	p := s.opened()
	p.do("lock", "h", s.name, "shared")
	other := s.open()
	reader := s.rlocked(other.RWMutex(s.name))
	writer := s.queue(s.open().Mutex(s.name), s.name, 1)
	p.kill()
	s.pass(s.TTL / 2)
	s.unlock(reader)
	s.unlock(writer.granted())
}

// crashRestart restarts the server under a holder and a waiter. Both finish, and
// where holds are durable the holder is alone until it has.
func crashRestart(s *scenario) {
	if s.unable(s.Restart == nil, "Restart") {
		return
	}
	ttl := dlock.Options{TTL: 10 * s.TTL} // a server may take several TTLs to start
	a, b := s.openWith(ttl), s.openWith(ttl)
	lease := s.locked(a.Mutex(s.name))
	next := s.start(b.Mutex(s.name))
	s.queued(s.name, 1)
	s.Restart(s.TB)
	if s.Durable {
		s.stays(lease, next)
	}
	if err := lease.Unlock(s.ctx); err != nil {
		s.not(err, dlock.ErrHeld, dlock.ErrAuth, dlock.ErrConflict)
	}
	s.done("the waiter finishes", next.ready)
	if next.err == nil {
		s.unlock(next.lease)
	} else {
		s.is(next.err, dlock.ErrUnavailable)
	}
	s.eventually("the lock works again", func() bool {
		again, err := a.Mutex(s.name).TryLock(s.ctx)
		return err == nil && again.Unlock(s.ctx) == nil
	})
}

// stays checks that a lock is still held after a restart: for its holder, for who
// waits, and for a stranger.
func (s *scenario) stays(lease *dlock.Lease, next *attempt) {
	s.Helper()
	c := s.open()
	s.eventually("the server says who holds", func() bool {
		other, err := c.Mutex(s.name).TryLock(s.ctx)
		if err == nil {
			_ = other.Unlock(s.ctx)
			s.Fatal("a restart ended a hold")
		}
		s.must(errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrUnavailable), "try: %v", err)
		return errors.Is(err, dlock.ErrHeld)
	})
	s.alive(lease)
	s.must(next.waiting() || next.err != nil, "a restart let the next in")
}

func waitQueuedProcessKilled(s *scenario) {
	if s.alone() {
		return
	}
	lease := s.locked(s.open().Mutex(s.name))
	p := s.opened()
	p.send("lock", "h", s.name, "exclusive")
	s.queued(s.name, 1)
	next := s.queue(s.open().Mutex(s.name), s.name, 2)
	p.kill()
	next.waits("the successor of a dead waiter got in beside the holder")
	s.alive(lease)
	s.unlock(lease)
	s.unlock(next.granted())
}

// waitQueuedProcessStopped stops a waiter. The others go on without it, and
// when it wakes up it never believes that it holds what it does not.
func waitQueuedProcessStopped(s *scenario) {
	if s.alone() {
		return
	}
	a, b := s.open(), s.open()
	lease := s.locked(a.Mutex(s.name))
	p := s.opened()
	call := p.send("lock", "h", s.name, "exclusive")
	s.queued(s.name, 1)
	next := s.queue(b.Mutex(s.name), s.name, 2)
	p.stop()
	s.unlock(lease)
	if !s.Leased {
		p.signal(syscall.SIGCONT)
		s.ok(p.wait(call).err)
		next.waits("overtaken")
		p.do("unlock", "h")
		s.unlock(next.granted())
		return
	}
	second := next.granted()
	p.signal(syscall.SIGCONT)
	s.pass(s.TTL / 2)
	s.alive(second)
	select {
	case a := <-call:
		s.must(a.err != nil, "a stopped waiter woke up and believes that it holds the lock")
	default: // it waits in the queue again
	}
	s.unlock(second)
}

// lossStoppedHolder stops a holder past its TTL. When it wakes up it knows
// that it has lost the lock before it claims to hold it, and its token is
// older than the next holder's.
func lossStoppedHolder(s *scenario) {
	if s.alone() {
		return
	}
	p := s.opened()
	p.do("lock", "h", s.name, "exclusive")
	old := p.do("state", "h").result
	next := s.queue(s.open().Mutex(s.name), s.name, 1)
	p.stop()
	if !s.Leased {
		s.pass(3 * s.TTL)
		next.waits("a held lock was granted")
		p.signal(syscall.SIGCONT)
		p.do("unlock", "h")
		s.unlock(next.granted())
		return
	}
	lease := next.granted()
	p.signal(syscall.SIGCONT)
	state := p.do("state", "h").result
	s.must(strings.Contains(state, "lost"), "the awakened holder says %q", state)
	var oldToken uint64
	fmt.Sscan(old, &oldToken)
	s.must(lease.Token() > oldToken && oldToken > 0, "token %d came after %d", lease.Token(), oldToken)
	if err := p.wait(p.send("unlock", "h")).err; err == nil || !strings.Contains(err.Error(), "lost") {
		s.Fatalf("the awakened holder unlocked: %v", err)
	}
	s.alive(lease)
	s.unlock(lease)
}

// tokenGrowsAcrossProcesses hands the lock from process to process.
func tokenGrowsAcrossProcesses(s *scenario) {
	if s.alone() {
		return
	}
	var last uint64
	for range 3 {
		p := s.opened()
		token, err := strconv.ParseUint(p.do("lock", "h", s.name, "exclusive").result, 10, 64)
		s.ok(err)
		s.must(token > last, "token %d came after %d", token, last)
		last = token
		p.do("unlock", "h")
		p.kill()
		mine := s.locked(s.open().Mutex(s.name))
		s.must(mine.Token() > last, "token %d came after %d", mine.Token(), last)
		last = mine.Token()
		s.unlock(mine)
	}
}
