package keepalive

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// A schedule gives its items back in the order of their dates, whichever are
// taken out in between.
func TestScheduleInOrder(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		var s schedule
		var want []moment
		for range rng.IntN(60) {
			it := &Item{due: moment(rng.IntN(30)), end: never}
			it.deadline.set(clock{}, &backend.Hold{})
			s.push(it)
			want = append(want, it.due)
		}
		for range rng.IntN(len(s) + 1) {
			it := s[rng.IntN(len(s))]
			s.remove(it)
			i := slices.Index(want, it.due)
			want = slices.Delete(want, i, i+1)
		}
		for i, it := range s {
			if int(it.index) != i+1 {
				t.Fatalf("the item at %d believes to be at %d", i, it.index-1)
			}
		}
		slices.Sort(want)
		for _, at := range want {
			if it := s.pop(); it.at != at || it.index != 0 {
				t.Fatalf("popped %d with index %d, want %d", it.at, it.index, at)
			}
		}
		if len(s) > 0 {
			t.Fatalf("%d are left", len(s))
		}
	}
}
