package simulation

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

// A stutter is a time in which goroutines of the library are stopped where they take or leave a
// mutex, here one and there one, as by a machine that has other things to do. It has an effect
// only where the library is built for that; see TestStutters.

func init() { kinds["stutter"] = touch{loses: true, fails: true} }

// stutters gives a plan times in which goroutines are stopped.
func (p *Plan) stutters() {
	d := &draw{rand.New(rand.NewPCG(p.Seed, 12))}
	for range 1 + d.IntN(4) {
		p.Faults = append(p.Faults, Fault{
			Kind: "stutter", At: d.within(0, p.Length), Client: -1,
			For: d.within(0, min(3*p.TTL, longest)), Size: d.within(0, pick(d, p.TTL/6, p.TTL, min(2*p.TTL, longest))),
		})
	}
}

// One in so many times that a mutex is taken or left a goroutine is stopped.
const rarely = 100

// stutter has goroutines stop until f is over.
func (w *world) stutter(f Fault) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(w.plan.Seed, uint64(f.At)))
	slowsync.Stop(func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(rarely) > 0 {
			return 0
		}
		return time.Duration(rnd.Int64N(int64(f.Size) + 1))
	})
	time.AfterFunc(f.For, func() { slowsync.Stop(nil) })
}

// stuttered reports whether goroutines were stopped since then: what is promised about time, and
// about what comes first, is not kept then.
func (r *register) stuttered(since time.Time) bool {
	return slices.ContainsFunc(r.touches, func(t touched) bool { return t.kind == "stutter" && t.to.After(since.Add(-lingers)) })
}
