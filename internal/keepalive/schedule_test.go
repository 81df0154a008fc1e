package keepalive

import (
	"math/rand/v2"
	"testing"
)

// TestSchedule adds, moves and removes items at random: the one on top is always
// the first, and each knows its place.
func TestSchedule(t *testing.T) {
	var s schedule
	var all []*Item
	for range 20_000 {
		switch it := (*Item)(nil); {
		case len(all) == 0 || rand.N(3) == 0 && len(all) < 200:
			it = &Item{due: rand.N(moment(1000)), end: never}
			it.deadline.running.Store(int64(never))
			s.add(it)
			all = append(all, it)
		case rand.N(2) == 0:
			it = all[rand.N(len(all))]
			it.due = rand.N(moment(1000))
			s.move(it)
		default:
			i := rand.N(len(all))
			it = all[i]
			s.remove(it)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			if it.index != 0 {
				t.Fatal("an item that was removed has a place")
			}
		}
		check(t, s, all)
	}
}

func check(t *testing.T, s schedule, all []*Item) {
	t.Helper()
	if len(s) != len(all) {
		t.Fatalf("%d dates of %d items", len(s), len(all))
	}
	for _, it := range all {
		switch d := s[it.index-1]; {
		case d.item != it || d.at != it.due:
			t.Fatalf("the date of an item is %v", d)
		case d.at < s[0].at:
			t.Fatal("an item is earlier than the one on top")
		}
	}
}
