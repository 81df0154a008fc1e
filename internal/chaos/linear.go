package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A spec is one of the models of a lock that a history has to fit: with entries
// by who holds it already or without, with tokens or without. Each knows readers
// and writers.
type spec struct {
	name              string
	reentrant, fenced bool
}

var specs = []spec{
	{"mutex", false, false},
	{"re-entrant mutex", true, false},
	{"fenced mutex", false, true},
	{"re-entrant fenced mutex", true, true},
}

// An action is what an operation does to the lock.
type action int

const (
	take action = iota
	give
	drop // gives it up at some time, or has lost it already
)

// A step is the input of an operation; its hold says the rest.
type step struct {
	do     action
	who    int64 // the outermost call
	inner  bool
	shared bool
	token  uint64
}

// A lockState is the lock between two steps.
type lockState struct {
	writer  int64  // 0: none
	entries int    // of the writer, the first included
	readers string // those inside, in order; each with its entries
	wrote   uint64 // greatest token of a writer
	seen    uint64 // greatest token of all
}

const searchLimit = time.Minute

// Linear checks that the history of each short-lived key fits every model in
// some order of its operations, and returns what does not. A picture of each
// failure is written to dir.
func (h *History) Linear(dir string) (found []Violation, checked int) {
	keys := h.byKey()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !strings.HasPrefix(key, mutex) && !strings.HasPrefix(key, rw) {
			continue
		}
		checked++
		for _, s := range specs {
			if v := h.fits(s, key, keys[key], dir); v != nil {
				found = append(found, *v)
			}
		}
	}
	return found, checked
}

func (h *History) fits(s spec, key string, calls []*hold, dir string) *Violation {
	model, ops := s.model(), h.operations(s, calls)
	verdict, info := porcupine.CheckOperationsVerbose(model, ops, searchLimit)
	if verdict == porcupine.Ok {
		return nil
	}
	name := strings.NewReplacer("/", "-", " ", "-").Replace(key + " " + s.name)
	v := &Violation{"I3", key, fmt.Sprintf("fits no order of a %s", s.name)}
	if verdict == porcupine.Unknown {
		v.Text = fmt.Sprintf("took too long to compare with a %s", s.name)
	}
	if dir != "" {
		path := dir + "/" + name + ".html"
		if err := porcupine.VisualizePath(model, info, path); err == nil {
			v.Text += ", see " + path
		}
	}
	return v
}

// operations turns calls into what the model knows. A call that failed leaves
// no trace in it: whatever it got is given back before anybody can tell.
func (h *History) operations(s spec, calls []*hold) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, c := range calls {
		inner := c.under != 0
		if !c.held() || inner && !s.reentrant || h.stale(c.outermost(calls), calls) {
			continue
		}
		in := step{do: take, who: who(c.worker, c.call), inner: inner, shared: c.shared, token: c.token}
		if inner {
			in.who = who(c.worker, c.under)
		}
		ops = append(ops, porcupine.Operation{ClientId: c.worker, Input: in, Call: c.asked, Return: c.granted})
		if end, ok := h.endOf(c, in, calls); ok {
			ops = append(ops, end)
		}
	}
	return ops
}

// outermost is the call that c is under, or c.
func (c *hold) outermost(calls []*hold) *hold {
	i := slices.IndexFunc(calls, func(o *hold) bool { return o.worker == c.worker && o.call == c.under })
	if i < 0 {
		return c
	}
	return calls[i]
}

func who(worker, call int) int64 { return int64(worker)<<32 | int64(call) }

// endOf is the operation that ends a hold. Its time is open where the worker
// did not learn of the end, or passed on what the server had forgotten.
func (h *History) endOf(c *hold, in step, calls []*hold) (porcupine.Operation, bool) {
	in.do = give
	op := porcupine.Operation{ClientId: c.worker, Input: in, Call: c.unlocking, Return: c.unlocked}
	unknown := h.forgot(c.asked, c.until()) && slices.ContainsFunc(calls, c.passedTo)
	if !c.kept() || unknown {
		in.do, op.Call, op.Return = drop, c.until(), never
		if h.asleep(c.worker, c.asked, c.until()) {
			op.Call = c.granted
		}
		if h.forgot(c.asked, c.until()) {
			op.Call = c.asked
		}
		op.Input = in
	}
	return op, op.Call != never
}

func (s spec) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) { return s.step(state.(lockState), input.(step)) },
		DescribeOperation: func(input, _ any) string {
			in := input.(step)
			verb := [...]string{"take", "give", "drop"}[in.do]
			if in.inner {
				verb = "inner " + verb
			}
			if in.shared {
				verb += " shared"
			}
			return fmt.Sprintf("%s %d/%d (%d)", verb, in.who>>32, in.who&(1<<32-1), in.token)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

func (s spec) step(l lockState, in step) (bool, lockState) {
	if in.do == take {
		return s.take(l, in)
	}
	if in.do == give || in.inner {
		ok, after := l.leave(in)
		return ok || in.do == drop, after
	}
	if l.writer == in.who {
		l.writer, l.entries = 0, 0
	}
	l.readers = strings.ReplaceAll(l.readers, entry(in.who), "")
	return true, l
}

func (s spec) take(l lockState, in step) (bool, lockState) {
	switch {
	case in.inner && l.writer == in.who:
		l.entries++
		return !s.fenced || in.token == l.wrote, l
	case in.inner:
		return l.has(in.who), l.withReader(in.who)
	case in.shared:
		ok := l.writer == 0 && (!s.fenced || in.token > l.wrote)
		l.seen = max(l.seen, in.token)
		return ok, l.withReader(in.who)
	}
	ok := l.writer == 0 && l.readers == "" && (!s.fenced || in.token > l.seen)
	l.writer, l.entries, l.wrote, l.seen = in.who, 1, max(l.wrote, in.token), max(l.seen, in.token)
	return ok, l
}

// leave ends one entry of who holds the lock.
func (l lockState) leave(in step) (bool, lockState) {
	if l.writer == in.who {
		l.entries--
		if l.entries == 0 {
			l.writer = 0
		}
		return true, l
	}
	ok := l.has(in.who)
	l.readers = strings.Replace(l.readers, entry(in.who), "", 1)
	return ok, l
}

func entry(who int64) string { return fmt.Sprintf("<%d>", who) }

func (l lockState) has(who int64) bool { return strings.Contains(l.readers, entry(who)) }

func (l lockState) withReader(who int64) lockState {
	var all []string
	if l.readers != "" {
		all = strings.SplitAfter(strings.TrimSuffix(l.readers, ">"), ">")
		all[len(all)-1] += ">"
	}
	all = append(all, entry(who))
	slices.Sort(all)
	l.readers = strings.Join(all, "")
	return l
}
