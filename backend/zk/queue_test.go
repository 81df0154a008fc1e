package zk

import (
	"fmt"
	"math"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

const guid = "0123456789abcdef0123456789abcdef"

func named(letter string, seq int32) string { return fmt.Sprintf("%s-%s-%010d", guid, letter, seq) }

func TestParsePosition(t *testing.T) {
	for _, seq := range []int32{0, 7, math.MaxInt32, math.MinInt32, -1} {
		p, ok := parsePosition(named("w", seq))
		if !ok || p.seq != seq || p.mode != backend.Exclusive {
			t.Errorf("%q: %+v, %v", named("w", seq), p, ok)
		}
	}
	if p, ok := parsePosition(named("r", 1)); !ok || p.mode != backend.Shared {
		t.Errorf("reader: %+v, %v", p, ok)
	}
	for _, name := range []string{
		"", "lock-0000000001", "_c_", "_c_" + guid + "-lock-0000000001", guid, guid + "-w-", guid + "-w-1",
		guid + "-x-0000000001", guid + "-w-00000000x1", guid + "-w-9999999999", "g" + guid[1:] + "-w-0000000001",
		guid + "_w_0000000001", guid + "-w-00000000010000000000",
	} {
		if p, ok := parsePosition(name); ok {
			t.Errorf("%q is taken for %+v", name, p)
		}
	}
}

func positions(t *testing.T, list ...string) (q queue) {
	t.Helper()
	q = parseQueue(list)
	if len(q) != len(list) {
		t.Fatalf("%v: %v", list, q)
	}
	return q
}

func TestPredecessors(t *testing.T) {
	q := positions(t, named("r", 9), named("w", 7), named("r", 8))
	for i, want := range []struct {
		count int
		last  int32
	}{{1, 7}, {0, 0}, {1, 7}} {
		if b := q.predecessorsOf(q[i]); b.count != want.count || b.last.seq != want.last {
			t.Errorf("ahead of %s: %+v, want %+v", q[i].name, b, want)
		}
	}
	if b := q.conflicting(backend.Exclusive); b.count != 3 || b.last.seq != 9 {
		t.Errorf("a new writer is barred by %+v", b)
	}
}

// TestOrderAfterOverflow has numbers as servers give them at the end: the
// greatest again and again, or on from the smallest.
func TestOrderAfterOverflow(t *testing.T) {
	q := positions(t,
		named("w", math.MaxInt32-1), named("w", math.MaxInt32), named("w", math.MinInt32), named("w", math.MaxInt32),
		named("w", math.MinInt32+1))
	for i := range q {
		if q[i].hasOverflowed() {
			q[i].rank = int64(i)
		}
	}
	for i, p := range q {
		for j, other := range q {
			if p.precedes(other) != (i < j) {
				t.Errorf("%s before %s: %v", p.name, other.name, p.precedes(other))
			}
		}
	}
	if last, first := positions(t, named("w", -1))[0], positions(t, named("w", 0))[0]; !last.precedes(first) || first.precedes(last) {
		t.Error("numbers that have wrapped come after those that follow")
	}
}
