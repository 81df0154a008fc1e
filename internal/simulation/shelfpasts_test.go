package simulation

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A reader has no part of a member at which a writer of another client waits, and is excused by nothing else.
func TestWhoIsBarred(t *testing.T) {
	mine, other := strings.Repeat("a", 32), strings.Repeat("b", 32)
	s := &server{owners: new(sync.Map)}
	s.owners.Store(mine, "c0")
	s.owners.Store(other, "c1")
	reads := func(client string) backend.Party {
		return backend.Party{Client: client, Mode: backend.Shared, Left: time.Second}
	}
	writes := func(client string) backend.Party { return backend.Party{Client: client, Mode: backend.Exclusive} }
	for what, c := range map[string]struct {
		holders, waiters []backend.Party
		barred           bool
	}{
		"nobody waits":              {holders: []backend.Party{reads(other)}},
		"a writer waits":            {[]backend.Party{reads(other)}, []backend.Party{writes(other), reads(mine)}, true},
		"it has a part":             {[]backend.Party{reads(other), reads(mine)}, []backend.Party{writes(other)}, false},
		"a writer of its own waits": {[]backend.Party{reads(other)}, []backend.Party{writes(mine)}, false},
		"a reader waits":            {[]backend.Party{writes(other)}, []backend.Party{reads(other)}, false},
	} {
		p := span{truth: truthOf(backend.Snapshot{Holders: c.holders, Waiters: c.waiters}, s), server: s}
		if got := p.bars("c0"); got != c.barred {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// What members in memory have of a lock is known from when they have it until it ends.
func TestShelfPasts(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	p := &Plan{
		Backend: "quorum", Shelves: true, Servers: 3, Names: 1, TTL: 3 * s, Length: length, Latency: ms, MaxTTL: 5 * s, Skew: s,
		Clients: []Party{
			{Workers: [][]Op{{{Call: "lock", Names: []int{0}, Hold: 10 * s, Unlock: "live"}}}},
			{Workers: [][]Op{{{Pause: s, Call: "lock", Names: []int{0}, Unlock: "live"}}}},
		},
	}
	var seen string
	for _, e := range Run(t, p).History {
		if e.Party == -1 && strings.HasPrefix(e.Text, "s0 ") {
			_, what, _ := strings.Cut(e.Text, ": ")
			what, _, _ = strings.Cut(what, ", ")
			_, queue, _ := strings.Cut(e.Text, "queue ")
			if now := what + queue + " "; !strings.HasSuffix(seen, now) {
				seen += now
			}
		}
	}
	if !strings.Contains(seen, "[w:c0][] ") || !strings.Contains(seen, "[w:c1][] ") || !strings.HasSuffix(seen, "[][] ") {
		t.Errorf("a member had %s", seen)
	}
}
