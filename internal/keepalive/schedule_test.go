package keepalive

import (
	"math/rand/v2"
	"testing"
)

// TestSchedule adds, moves and removes lots at random: the one on top is always
// the first, and each knows its place.
func TestSchedule(t *testing.T) {
	var s schedule
	var all []*lot
	for range 20_000 {
		switch l := (*lot)(nil); {
		case len(all) == 0 || rand.N(3) == 0 && len(all) < 200:
			l = &lot{due: rand.N(moment(1000)), end: never, deadline: deadline{running: never}}
			s.add(l)
			all = append(all, l)
		case rand.N(2) == 0:
			l = all[rand.N(len(all))]
			l.due = rand.N(moment(1000))
			s.move(l)
		default:
			i := rand.N(len(all))
			l = all[i]
			s.remove(l)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
			if l.index != 0 {
				t.Fatal("a lot that was removed has a place")
			}
		}
		check(t, s, all)
	}
}

func check(t *testing.T, s schedule, all []*lot) {
	t.Helper()
	if len(s) != len(all) {
		t.Fatalf("%d dates of %d lots", len(s), len(all))
	}
	for _, l := range all {
		switch d := s[l.index-1]; {
		case d.lot != l || d.at != l.due:
			t.Fatalf("the date of a lot is %v", d)
		case d.at < s[0].at:
			t.Fatal("a lot is earlier than the one on top")
		}
	}
}
