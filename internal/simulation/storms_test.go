package simulation

import (
	"testing"
	"time"
)

// Who has let go of a lock looks after it once a lease, which is short where another client asks for one that is over
// before that hears of it, and no call of its own says so.
func TestLoadBesideVain(t *testing.T) {
	r := newRegister(&world{plan: &Plan{Backend: "redis", Servers: 1, TTL: time.Second, Latency: 10 * time.Millisecond, Clients: make([]Party, 2)}})
	c := &call{client: 1, names: []string{"a"}, waits: true}
	r.calls[c] = true
	idle := mayAsk.within(time.Second, r.loadOf(0))
	c.inVain = true
	if more := mayAsk.within(time.Second, r.loadOf(0)) - idle; more != 3*1000/20 {
		t.Errorf("beside a call that asks in vain a client may ask %v times more in a second", more)
	}
}
