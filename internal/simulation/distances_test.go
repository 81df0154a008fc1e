package simulation

import (
	"strings"
	"testing"
	"time"
)

// A client that is near has a lock sooner than one that is far, and later once it has moved away.
func TestDistances(t *testing.T) {
	op := func(name int) Op {
		return Op{Pause: 10 * time.Second, Call: "lock", Names: []int{name}, Hold: time.Second, Unlock: "live"}
	}
	near, far := Party{Workers: [][]Op{{op(0), op(0), op(0), op(0)}}}, Party{Workers: [][]Op{{op(1), op(1), op(1), op(1)}}}
	r := Run(t, &Plan{
		Backend: "redis", Servers: 1, Latency: 50 * time.Millisecond, Names: 2, TTL: 30 * time.Second, Length: length,
		Clients:   []Party{near, far},
		Distances: []distance{{Client: 0, Server: -1, By: 50, At: 30 * time.Second, To: 1}, {Client: 1, Server: 0, By: 5}},
	})
	if len(r.Violations) > 0 || r.Grants != 8 {
		t.Errorf("%v\n%s", r.Violations, r.Table(2))
	}
	var took []time.Duration // of each lock of the first client
	asked := time.Duration(0)
	for _, e := range r.History {
		switch {
		case e.Party == 0 && e.Text == "lock [a]?":
			asked = e.At
		case e.Party == 0 && strings.HasPrefix(e.Text, "lock a: token"):
			took = append(took, e.At-asked)
		}
	}
	if len(took) != 4 || took[1] != 2*time.Millisecond || took[3] != 100*time.Millisecond {
		t.Errorf("locks have taken %v", took)
	}
}
