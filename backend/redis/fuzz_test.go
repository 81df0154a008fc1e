package redis

import (
	"math"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A dealer makes replies of what a fuzzer says.
type dealer struct{ raw []byte }

func (d *dealer) byte() byte {
	if len(d.raw) == 0 {
		return 0
	}
	b := d.raw[0]
	d.raw = d.raw[1:]
	return b
}

func (d *dealer) reply(depth int) any {
	words := []string{"GRANTED", "QUEUED", "HELD", "GONE", "DEAD", "OK", "LOST", "LEFT", "NOT_HELD", "NOT_READY", "FAILED", "", "1"}
	numbers := []int64{math.MinInt64, math.MaxInt64, 1 << 53, time.Now().UnixMicro(), time.Now().UnixMilli()}
	switch n := d.byte(); {
	case n < 40 && depth < 3:
		list := make([]any, n%10)
		for i := range list {
			list[i] = d.reply(depth + 1)
		}
		return list
	case n < 60:
		return nil
	case n < 120:
		return words[int(n)%len(words)]
	case n < 180:
		return int64(n) - 150
	default:
		return numbers[int(n)%len(numbers)]
	}
}

// FuzzReplies has a server answer scripts with whatever it likes.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{5, 60, 183, 183, 184, 150})
	f.Add([]byte{4, 150, 184, 150, 200})
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := &dealer{raw}
		r := backend.Request{Name: "name", ID: backend.ID{Client: "client", Seq: 1}, Mode: backend.Exclusive, TTL: time.Minute, Observer: silentObserver{}}
		b := &Backend{ids: newIDSigner(), free: newFreeCache(), poll: time.Second}
		c := &acquisition{Request: r, b: b, key: lockKey(r.Name)}
		c.id = b.ids.newID(c.key, &r, 0, false, nil)
		a := answer{sent: time.Now()}
		a.read(d.reply(0))
		_, _ = mayOwe(c.status(a)), notReady(a)
		_ = c.status(a)
		c.queuedAt = moment{a.sent, a.int(1)}
		g := c.grantOf(a)
		g.byMessage = raw != nil && len(raw)%2 == 0
		_ = c.isTimely(&g)
		h := &backend.Hold{Request: r}
		h.State = c.newHoldState(h, g)
		_, _ = b.Transfer(h)
		_ = c.pollInterval(a)
		_ = rankOf(a)
		for n := 1; n < 4; n++ {
			expiries, err := readExpiries(a, n)
			if err != nil {
				continue
			}
			for _, expiry := range expiries {
				_ = renewed(h, true, a, expiry)
			}
		}
		joint := &request{reply: d.reply(0), members: []*command{{}, {}}}
		joint.deliver()
	})
}

// FuzzMessages has somebody tell a client, on its channel, whatever comes to mind: it
// knows what can be guessed of an id, and believes nothing.
func FuzzMessages(f *testing.F) {
	for _, text := range []string{
		"w60000:client:1 1 2 3 0 dlock:{name}", "contended w60000:client:1 00", "poll w60000:client:1 ", "w60000:client:1.AAAAAAAAAAA 1 2 3 0 dlock:{name}",
		"w60000:client:2.AAAAAAAAAAA 1 2 3 0 dlock:{}", " 1 1 1 1 dlock:{x}", "poll", "contended  ", "w:client:+1. 0 0 0 0 dlock:{",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := newListener(nil, nil, nil, true)
		ids, unclaimed := newIDSigner(), 0
		h.onUnclaimed = func(k key, id string) {
			if ids.hasMade(k, id) {
				unclaimed++
			}
		}
		wants := 0
		r := &backend.Request{Name: "name", ID: backend.ID{Client: "client", Seq: 1}, TTL: time.Minute, Observer: counting{&wants}}
		waits := ids.newID(lockKey("name"), r, 0, false, nil)
		w := newWaiter(lockKey("name"), waits, "")
		h.addWaiter(w)
		held := *r
		held.ID.Seq = 2
		h.addHold(&holdState{id: ids.newID(lockKey("name"), &held, 0, false, nil), hold: &backend.Hold{Request: held}})
		h.dispatch(text)
		if len(w.grants) > 0 || len(w.wakeUps) > 0 || unclaimed > 0 || wants > 0 {
			t.Errorf("believed: %q", text)
		}
		_ = ids.hasMade(key(text), text)
	})
}

type counting struct{ wants *int }

func (counting) Queued()    {}
func (counting) Lost(error) {}
func (c counting) Wanted()  { *c.wants++ }

// FuzzIDs has every request have an id of its own, which leads back to it.
func FuzzIDs(f *testing.F) {
	f.Add("client", uint64(1), 0, int64(1000), false, false, "")
	f.Add("client", uint64(1), 1, int64(1000), true, true, "host:1.2+3=4 {x} ~\xff")
	f.Fuzz(func(t *testing.T, client string, seq uint64, entry int, ttl int64, reader, polls bool, label string) {
		for i := range len(client) {
			if c := client[i]; c <= ' ' || c == ':' || c == '+' || c == '.' || c > '~' {
				return // the root makes none like that
			}
		}
		r := &backend.Request{Name: "name", ID: backend.ID{Client: client, Seq: max(seq, 1)}, TTL: time.Duration(max(ttl, 1)), Label: label, Mode: backend.Exclusive}
		if reader {
			r.Mode = backend.Shared
		}
		m := newIDSigner()
		id := m.newID(lockKey("name"), r, max(entry, 0), polls, nil)
		other := *r
		other.ID.Seq++
		if openPart(id) == openPart(m.newID(lockKey("name"), &other, max(entry, 0), polls, nil)) {
			t.Errorf("%q is of two requests", id)
		}
		if p := partyOf(id); p != (backend.Party{Client: client, Label: label, Mode: r.Mode}) {
			t.Errorf("%q is of %+v", id, p)
		}
		if !m.hasMade(lockKey("name"), id) || m.hasMade(lockKey("other"), id) || newIDSigner().hasMade(lockKey("name"), id) {
			t.Errorf("who has made %q is not known", id)
		}
	})
}
