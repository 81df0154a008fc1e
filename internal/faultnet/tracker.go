package faultnet

import (
	"sync"
	"time"
)

// tracker follows the requests and replies of one link.
type tracker struct {
	requests *stream // nil without a framing; used by the writer to the server
	replies  *stream // nil without a framing; used by the reader of the server
	cut      bool    // nothing more goes to the server; used by its writer

	mu    sync.Mutex
	owed  map[uint32]int // replies that the server owes, by stream
	drops []*Drop        // not empty while a reply is being dropped
	on    uint32         // the stream of that reply
	ended bool
}

func newTracker(f Framing) *tracker {
	if f == nil {
		return &tracker{}
	}
	requests, replies := f()
	return &tracker{
		requests: &stream{split: requests},
		replies:  &stream{split: replies},
		owed:     make(map[uint32]int),
	}
}

// forward sees bytes that are about to go to the server, and returns how many
// of them may.
func (l *link) forward(b []byte) int {
	t := l.tracker
	if t.cut {
		return 0
	}
	if t.requests == nil {
		l.drop(l.proxy.matching(b), 0)
		return len(b)
	}
	t.requests.add(b)
	for {
		u, req, ok := t.requests.next()
		if !ok {
			return len(b)
		}
		if u.Counts && l.request(u.Stream, req) {
			t.cut = true
			return len(b) - t.requests.rest()
		}
	}
}

// request notes a whole request and reports whether its reply is to be dropped.
func (l *link) request(on uint32, req []byte) bool {
	l.proxy.requests.Add(1)
	if observe := l.proxy.observer(); observe != nil {
		observe(l.id, req)
	}
	l.tracker.owe(on)
	drops := l.proxy.matching(req)
	l.drop(drops, on)
	return len(drops) > 0
}

// drop begins to swallow what the server sends.
func (l *link) drop(drops []*Drop, on uint32) {
	if len(drops) == 0 {
		return
	}
	l.tracker.begin(drops, on)
	l.proxy.wg.Go(func() {
		select {
		case <-time.After(replyWait):
			l.reset()
		case <-l.ctx.Done():
		}
	})
}

// answer sees bytes as soon as the server has sent them. It resets l when they
// complete the reply to drop.
func (l *link) answer(b []byte) {
	if l.tracker.answered(b) {
		l.reset()
	}
}

// reply returns how many bytes of b may go to the client.
func (l *link) reply(b []byte) int {
	if l.tracker.dropping() {
		return 0
	}
	return len(b)
}

func (t *tracker) owe(on uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owed[on]++
}

func (t *tracker) owing() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.owed {
		n += of
	}
	return n
}

func (t *tracker) begin(drops []*Drop, on uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drops = append(t.drops, drops...)
	t.on = on
	if t.ended {
		t.fireLocked()
	}
}

func (t *tracker) dropping() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.drops) > 0
}

// answered reports whether b completes the answer that is to be dropped.
func (t *tracker) answered(b []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.completes(b) {
		return false
	}
	for _, d := range t.drops {
		d.answered.Store(true)
	}
	return true
}

func (t *tracker) completes(b []byte) bool {
	if t.replies == nil {
		return len(t.drops) > 0
	}
	t.replies.add(b)
	for {
		u, _, ok := t.replies.next()
		if !ok {
			return false
		}
		if u.Counts && t.settle(u.Stream) {
			return true
		}
	}
}

// settle notes a reply and reports whether it answers the matched request.
func (t *tracker) settle(on uint32) bool {
	// A server may say more than it was asked, so the debt never goes below zero.
	t.owed[on]--
	paid := t.owed[on] <= 0
	if paid {
		delete(t.owed, on)
	}
	return paid && len(t.drops) > 0 && on == t.on
}

// fire tells the drops of a link that has ended.
func (t *tracker) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.fireLocked()
}

func (t *tracker) fireLocked() {
	for _, d := range t.drops {
		close(d.fired)
	}
	t.drops = nil
}
