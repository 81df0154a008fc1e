package redis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// TestLongMessagesAreNotKept has somebody who may publish send long messages about holds that there
// are not, and somebody who hears grants send one again as a long one. No other test runs beside it:
// memory is measured.
func TestLongMessagesAreNotKept(t *testing.T) {
	const messages, length, most = 64, 1 << 20, 8 << 20
	long := strings.Repeat("x", length)
	zeros := strings.Repeat("0", length)
	for name, message := range map[string]func(b *Backend, i int) string{
		"contended, with a long id":     func(_ *Backend, i int) string { return fmt.Sprintf("contended %d%s %040x", i, long, i) },
		"broken, with a long id":        func(_ *Backend, i int) string { return fmt.Sprintf("broken %d%s %040x", i, long, i) },
		"contended, with a long digest": func(_ *Backend, i int) string { return fmt.Sprint("contended ", i, " ", long) },
		"broken, with a long digest":    func(_ *Backend, i int) string { return fmt.Sprint("broken ", i, " ", long) },
		"a grant that nobody waits for": func(b *Backend, i int) string { return longGrant(b, t.Name(), i, zeros) },
		"a grant that somebody waits for": func(b *Backend, i int) string {
			g := longGrant(b, t.Name(), i, zeros)
			id, _, _ := strings.Cut(g, " ")
			b.listener.addWaiter(newWaiter(lockKey(t.Name()), strings.Clone(id), ""))
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: shared.Addr(), DisableIdentity: true})
			defer c.Close()
			b := newBackend(t, c, &Options{PollOnly: true})
			before := heapInUse()
			for i := range messages {
				b.listener.dispatch(message(b, i))
			}
			if kept := heapInUse() - before; kept > most {
				t.Errorf("%d MiB are kept of %d messages of 1 MiB", kept>>20, messages)
			}
			b.listener.dispatch("") // b and what it keeps are still in use
		})
	}
}

// longGrant is the message of a grant to the i-th request of b, whose token is written with zeros ahead.
func longGrant(b *Backend, name string, i int, zeros string) string {
	r := &backend.Request{Name: name, ID: backend.ID{Client: "c", Seq: uint64(i)}, TTL: limit}
	k := lockKey(name)
	return fmt.Sprintf("%s %s1 1 1 0 %s", b.ids.newID(k, r, 0, false, nil), zeros, k)
}
