package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const ms = 1_000_000

// A script makes the history of a few workers by caller. Times are in ms.
type script struct {
	h    *History
	last int
}

func newScript() *script {
	return &script{h: &History{Patience: 50 * ms, Lease: 1000 * ms}}
}

func (s *script) trace(worker int) *Trace {
	for i := range s.h.Traces {
		if s.h.Traces[i].Worker == worker {
			return &s.h.Traces[i]
		}
	}
	s.h.Traces = append(s.h.Traces, Trace{Worker: worker})
	return &s.h.Traces[len(s.h.Traces)-1]
}

func (s *script) event(worker int, at int64, e Event) {
	e.At = at * ms
	t := s.trace(worker)
	t.Events = append(t.Events, e)
}

// take is a call that was granted; it returns its number.
func (s *script) take(worker int, asked, granted int64, token uint64, like ...Event) int {
	s.last++
	e := Event{Key: mutex}
	if len(like) > 0 {
		e = like[0]
	}
	e.Kind, e.Call = Asked, s.last
	s.event(worker, asked, e)
	s.event(worker, granted, Event{Kind: Granted, Call: s.last, Key: e.Key, Token: token})
	return s.last
}

func (s *script) give(worker, call int, from, to int64, err Class) {
	s.event(worker, from, Event{Kind: Unlocking, Call: call, Key: mutex})
	s.event(worker, to, Event{Kind: Unlocked, Call: call, Key: mutex, Err: err})
}

// check returns the rules that the history breaks.
func (s *script) check() []string {
	for i := range s.h.Traces {
		t := &s.h.Traces[i]
		t.Events = append(t.Events, Event{At: 1e6 * ms, Kind: Finished})
	}
	found := s.h.Check()
	linear, _ := s.h.Linear("")
	var rules []string
	for _, v := range append(found, linear...) {
		rules = append(rules, v.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// Each of these histories breaks the rule that stands in its name, and no other.
var broken = map[string]func(*script){
	"I1/LateWrite": func(s *script) {
		s.h.Writes = []Write{{Key: fenced, Token: 7, Value: 1}, {Key: fenced, Token: 5, Value: 2}}
	},
	"I1/LostUpdate": func(s *script) {
		s.h.Writes = []Write{{Key: fenced, Token: 5, Value: 1}, {Key: fenced, Token: 7, Value: 1}}
	},
	"I2/EarlierToken": func(s *script) {
		s.give(1, s.take(1, 0, 1, 7, Event{Key: plain}), 2, 3, "")
		s.give(2, s.take(2, 4, 5, 6, Event{Key: plain}), 6, 7, "")
	},
	"I2/EarlierTokenOfOneWhoWaited": func(s *script) {
		s.give(1, s.take(1, 1, 2, 7, Event{Key: plain}), 4, 5, "")
		s.give(2, s.take(2, 0, 6, 6, Event{Key: plain}), 7, 8, "")
	},
	"I2/SameToken": func(s *script) {
		s.give(1, s.take(1, 0, 3, 7, Event{Key: plain}), 4, 5, "")
		s.give(2, s.take(2, 2, 5, 7, Event{Key: plain}), 6, 7, "lost")
	},
	"I2/NoToken": func(s *script) { s.give(1, s.take(1, 0, 3, 0, Event{Key: plain}), 4, 5, "") },
	"I2/ReaderDoesNotFenceWriter": func(s *script) {
		s.give(1, s.take(1, 0, 1, 7, Event{Key: plain}), 2, 3, "")
		s.give(2, s.take(2, 4, 5, 7, Event{Key: plain, Shared: true}), 6, 7, "")
	},
	"I2/ReentryWithAnotherToken": func(s *script) {
		outer := s.take(1, 0, 1, 7, Event{Key: plain})
		inner := s.take(1, 2, 3, 8, Event{Key: plain, Under: outer})
		s.give(1, inner, 4, 5, "")
		s.give(1, outer, 6, 7, "")
	},
	"I3/TwoHolders": func(s *script) {
		a := s.take(1, 0, 1, 5)
		b := s.take(2, 0, 3, 7)
		s.give(1, a, 4, 5, "")
		s.give(2, b, 6, 7, "")
	},
	"I3/ReaderBesideWriter": func(s *script) {
		a := s.take(1, 0, 1, 5)
		b := s.take(2, 0, 3, 7, Event{Key: mutex, Shared: true})
		s.give(1, a, 4, 5, "")
		s.give(2, b, 6, 7, "")
	},
	"I3/LostTooLate": func(s *script) {
		a := s.take(1, 0, 1, 5)
		b := s.take(2, 0, 900, 7)
		s.event(1, 901, Event{Kind: Lost, Call: a, Key: mutex})
		s.give(1, a, 902, 903, "lost")
		s.give(2, b, 904, 905, "")
	},
	"I3/UnlockedWhatWasLost": func(s *script) {
		a := s.take(1, 0, 1, 5)
		b := s.take(2, 0, 1500, 7)
		s.event(1, 2000, Event{Kind: Stalled, Seen: 2 * ms}) // no excuse: the server said that it was the owner
		s.give(1, a, 2001, 2002, "")
		s.give(2, b, 2003, 2004, "")
	},
	"I3/LostUpdate": func(s *script) {
		for i := range int64(2) {
			w := int(i) + 1
			call := s.take(w, 10*i, 10*i+1, uint64(i)+5, Event{Key: plain})
			s.event(w, 10*i+2, Event{Kind: Wrote, Call: call, Key: plain, Seen: 3})
			s.give(w, call, 10*i+3, 10*i+4, "")
		}
	},
	"I6/NeverAnswered": func(s *script) { s.event(1, 0, Event{Kind: Asked, Call: 1, Key: mutex}) },
	"I6/UnlockNeverAnswered": func(s *script) {
		s.event(1, 5, Event{Kind: Unlocking, Call: s.take(1, 0, 1, 5), Key: mutex})
	},
	"I7/HeldByNobody": func(s *script) {
		s.give(1, s.take(1, 0, 1, 5), 2, 3, "")
		s.event(2, 10, Event{Kind: Asked, Call: 9, Key: mutex, Try: true})
		s.event(2, 11, Event{Kind: Failed, Call: 9, Key: mutex, Err: Held})
	},
	"I7/StrangeError": func(s *script) {
		s.event(2, 10, Event{Kind: Asked, Call: 9, Key: mutex})
		s.event(2, 11, Event{Kind: Failed, Call: 9, Key: mutex, Err: Wrong})
	},
	"I9/CloseFailed": func(s *script) { s.event(1, 2e6, Event{Kind: Finished, Err: Unavailable}) },
}

func TestCheckerFindsWhatIsBroken(t *testing.T) {
	for name, write := range broken {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			write(s)
			rule, _, _ := strings.Cut(name, "/")
			if strings.HasPrefix(name, "I9") { // it has had its last word
				if found := s.h.Check(); len(found) != 1 || found[0].Rule != rule {
					t.Errorf("found %v", found)
				}
				return
			}
			if got := s.check(); !slices.Equal(got, []string{rule}) {
				t.Errorf("found %v, want %s alone", got, rule)
			}
		})
	}
}

// These histories look bad and break nothing.
var sound = map[string]func(*script){
	"ForgottenOnItsWay": func(s *script) { // the server had let b go before b heard of its grant
		s.h.Faults = []Injected{{Span: Span{2 * ms, 3 * ms}, Healthy: 500 * ms, Forgets: true}}
		b := s.take(2, 0, 7, 4)
		a := s.take(1, 1, 5, 5)
		s.give(1, a, 6, 8, "")
		s.give(2, b, 9, 10, "")
	},
	"Stopped": func(s *script) { // who was stopped cannot know
		a := s.take(1, 0, 1, 5)
		b := s.take(2, 0, 1500, 7)
		s.trace(1).Pauses = []Span{{2 * ms, 2000 * ms}}
		s.event(1, 2001, Event{Kind: Lost, Call: a, Key: mutex})
		s.give(1, a, 2002, 2003, "lost")
		s.give(2, b, 2004, 2005, "")
	},
	"Killed": func(s *script) {
		s.take(1, 0, 1, 5)
		s.trace(1).Ended = 2 * ms
		s.give(2, s.take(2, 0, 1500, 7), 1501, 1502, "")
	},
	"Forgotten": func(s *script) { // the server lost its data
		s.h.Faults = []Injected{{Span: Span{2 * ms, 3 * ms}, Healthy: 500 * ms, Forgets: true}}
		a := s.take(1, 0, 1, 5)
		b := s.take(2, 0, 300, 7)
		s.event(1, 400, Event{Kind: Lost, Call: a, Key: mutex})
		s.give(1, a, 401, 402, "lost")
		s.give(2, b, 403, 404, "")
	},
	"PassedOnForgotten": func(s *script) { // and the holder did not know
		s.h.Faults = []Injected{{Span: Span{2 * ms, 3 * ms}, Healthy: 500 * ms, Forgets: true}}
		a := s.take(1, 0, 1, 5)
		s.give(2, s.take(2, 10, 11, 9), 12, 13, "")
		s.give(1, a, 19, 20, "")
		s.give(1, s.take(1, 14, 21, 6), 22, 23, "lost")
	},
	"Queued": func(s *script) { // when it gave up, and that is held too
		s.h.Queues = true
		s.event(2, 5, Event{Kind: Asked, Call: 9, Key: mutex})
		s.event(2, 6, Event{Kind: Failed, Call: 9, Key: mutex, Err: Held})
	},
	"HeldByAMinority": func(s *script) { // of which one has not heard of the unlock
		s.h.Several = true
		s.give(1, s.take(1, 0, 1, 5), 2, 3, "")
		s.event(2, 5, Event{Kind: Asked, Call: 9, Key: mutex, Try: true})
		s.event(2, 6, Event{Kind: Failed, Call: 9, Key: mutex, Err: Held})
	},
	"HeldByTheDead": func(s *script) {
		s.take(1, 0, 1, 5)
		s.trace(1).Ended = 2 * ms
		s.event(2, 900, Event{Kind: Asked, Call: 9, Key: mutex, Try: true})
		s.event(2, 901, Event{Kind: Failed, Call: 9, Key: mutex, Err: Held})
	},
	"Readers": func(s *script) {
		shared := Event{Key: mutex, Shared: true}
		a, b := s.take(1, 0, 1, 5, shared), s.take(2, 0, 2, 5, shared)
		s.give(1, a, 3, 4, "")
		s.give(2, b, 5, 6, "")
	},
	"ReentryOfReaderBesideAnotherWhileForgotten": func(s *script) {
		shared := Event{Key: mutex, Shared: true}
		s.h.Faults = []Injected{{Span: Span{2 * ms, 3 * ms}, Healthy: 500 * ms, Forgets: true}}
		outer, beside := s.take(1, 0, 6, 5, shared), s.take(1, 1, 5, 5, shared)
		inner := s.take(1, 7, 8, 5, Event{Key: mutex, Shared: true, Under: outer})
		s.give(1, beside, 7, 9, "")
		s.give(1, inner, 10, 11, "")
		s.give(1, outer, 12, 13, "")
	},
	"Reentry": func(s *script) {
		outer := s.take(1, 0, 1, 5)
		inner := s.take(1, 2, 3, 5, Event{Key: mutex, Under: outer})
		s.give(1, outer, 4, 5, "")
		s.give(1, inner, 6, 7, "")
		s.give(2, s.take(2, 0, 8, 6), 9, 10, "")
	},
	"UnknownUnlock": func(s *script) {
		s.give(1, s.take(1, 0, 1, 5), 2, 3, Unavailable)
		s.give(2, s.take(2, 0, 3, 6), 9, 10, "")
	},
}

func TestCheckerAllowsWhatCannotBeHelped(t *testing.T) {
	for name, write := range sound {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			write(s)
			if got := s.check(); len(got) > 0 {
				t.Errorf("found %v: %v", got, s.h.Check())
			}
		})
	}
}

// Each model finds what the sweeps have no eye for: an order of operations
// that no lock has.
func TestModelsFindWhatIsBroken(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails []string // models
		write func(*script)
	}{
		{"Overlap", []string{"mutex", "re-entrant mutex", "fenced mutex", "re-entrant fenced mutex"}, broken["I3/TwoHolders"]},
		{"Token", []string{"fenced mutex", "re-entrant fenced mutex"}, func(s *script) {
			s.give(1, s.take(1, 0, 1, 7), 2, 3, "")
			s.give(2, s.take(2, 4, 5, 6), 6, 7, "")
		}},
		{"FreeBeforeTheLastExit", []string{"re-entrant mutex", "re-entrant fenced mutex"}, func(s *script) {
			outer := s.take(1, 0, 1, 5)
			inner := s.take(1, 2, 3, 5, Event{Key: mutex, Under: outer})
			s.give(1, outer, 4, 5, "")
			s.give(2, s.take(2, 0, 6, 6), 7, 8, "")
			s.give(1, inner, 9, 10, "")
		}},
		{"TokenOfReentry", []string{"re-entrant fenced mutex"}, func(s *script) {
			outer := s.take(1, 0, 1, 5)
			s.give(1, s.take(1, 2, 3, 6, Event{Key: mutex, Under: outer}), 4, 5, "")
			s.give(1, outer, 6, 7, "")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			c.write(s)
			found, _ := s.h.Linear("")
			var models []string
			for _, v := range found {
				models = append(models, strings.TrimPrefix(v.Text, "fits no order of a "))
			}
			if !slices.Equal(models, c.fails) {
				t.Errorf("models that fail: %q, want %q", models, c.fails)
			}
		})
	}
}

func TestFailureHasAPicture(t *testing.T) {
	s, dir := newScript(), t.TempDir()
	broken["I3/TwoHolders"](s)
	s.h.Linear(dir)
	page, err := os.ReadFile(filepath.Join(dir, "mutex-mutex.html"))
	if err != nil || !strings.Contains(string(page), "<html") {
		t.Errorf("no picture: %v", err)
	}
}
