package zk

import (
	"cmp"
	"math"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// FuzzNames has a server name the children of a lock's node as it likes.
func FuzzNames(f *testing.F) {
	guid := strings.Repeat("0123456789abcdef", 2)
	for _, names := range []string{
		guid + "-w-0000000001", guid + "-r-2147483647\n" + guid + "-w--2147483648", guid + "-w-0000000001-free", guid + "-x-1", "-w-", guid + "-w-99999999999",
	} {
		f.Add(names, "5 label")
	}
	f.Fuzz(func(t *testing.T, names, data string) {
		q := parseQueue(strings.Split(names, "\n"))
		for _, p := range q {
			rank, _, _ := parseNodeData([]byte(data))
			if p.rank = cmp.Or(rank, int64(p.seq)); p.precedes(p) {
				t.Errorf("%q is before itself", p.name)
			}
			if r, ok := parsePosition(p.readerName()); !ok || r.mode != backend.Shared || r.seq != p.seq {
				t.Errorf("the reader in the place of %q is %+v", p.name, r)
			}
			if _, ok := parsePosition(signalOf(p.name)); ok {
				t.Errorf("the signal of %q is a position", p.name)
			}
			if found, ok := q.find(p.name); !ok || found.name != p.name {
				t.Errorf("%q is not found", p.name)
			}
			for _, o := range q {
				opposite := p.seq-o.seq == math.MinInt32 // on the circle of numbers, half of it away
				if p.precedes(o) && o.precedes(p) && !opposite {
					t.Errorf("%q and %q are before each other", p.name, o.name)
				}
			}
			if b := q.predecessorsOf(p); b.count > len(q) || b.count > 0 && b.last.name == "" {
				t.Errorf("predecessors %+v of %d", b, len(q))
			}
		}
		n := &node{}
		if err := n.setName("/locks/" + names); err == nil && n.name == "" {
			t.Error("a node without a name")
		}
	})
}
