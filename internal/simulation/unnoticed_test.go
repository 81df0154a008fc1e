package simulation

import (
	"strings"
	"testing"
	"time"
)

// A subscription is mute, and nobody waits for as long as it takes to ask it twice. Its client misses the
// word of one grant, and of no other.
func TestUnnoticed(t *testing.T) {
	var first, second []Op
	for i := range 4 {
		op := Op{Call: "lock", Names: []int{0}, Hold: 3 * time.Second, Unlock: "live"}
		first = append(first, op)
		op.Pause, op.Hold = 2500*time.Millisecond, 100*time.Millisecond
		if i == 0 {
			op.Pause = time.Second // when it subscribes: every 5 s from then on the subscription may be asked
		}
		second = append(second, op)
	}
	r := Run(t, &Plan{
		Backend: "redis", Servers: 1, Latency: time.Millisecond, Names: 1, TTL: 30 * time.Second, Length: 90 * time.Second, Beat: 20 * time.Second,
		Clients: []Party{{Workers: [][]Op{first}}, {Workers: [][]Op{second}}},
		Faults:  []Fault{{Kind: "mute", At: 30 * time.Second, Client: 1}},
	})
	late := 0
	for _, e := range r.History {
		if e.Party == 1 && strings.HasPrefix(e.Text, "lock a: token") && e.At%(20*time.Second) > 5*time.Second {
			late++
		}
	}
	if len(r.Violations) > 0 || late != 1 {
		t.Errorf("%d late: %v\n%s", late, r.Violations, r.Table(2))
	}
}
