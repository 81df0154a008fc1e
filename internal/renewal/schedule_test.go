package renewal

import (
	"math/rand/v2"
	"testing"
)

// TestSchedule adds, moves and removes batches at random: the one on top is always
// the first, and each knows its place.
func TestSchedule(t *testing.T) {
	var s schedule
	var all []*batch
	for range 20_000 {
		switch b := (*batch)(nil); {
		case len(all) == 0 || rand.N(3) == 0 && len(all) < 200:
			b = &batch{plan: plan{due: rand.N(moment(1000)), end: never, until: never}, idle: 1}
			s.add(b)
			all = append(all, b)
		case rand.N(2) == 0:
			b = all[rand.N(len(all))]
			b.due = rand.N(moment(1000))
			s.move(b)
		default:
			i := rand.N(len(all))
			b = all[i]
			s.remove(b)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			if b.index != 0 {
				t.Fatal("a batch that was removed has a place")
			}
		}
		check(t, s, all)
	}
}

func check(t *testing.T, s schedule, all []*batch) {
	t.Helper()
	if len(s.dates) != len(all) {
		t.Fatalf("%d dates of %d batches", len(s.dates), len(all))
	}
	for _, b := range all {
		switch d := s.dates[b.index-1]; {
		case d.batch != b || d.at != b.due:
			t.Fatalf("the date of a batch is %v", d)
		case d.at < s.dates[0].at:
			t.Fatal("a batch is earlier than the one on top")
		}
	}
}
