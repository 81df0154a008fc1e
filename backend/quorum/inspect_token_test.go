package quorum

import "testing"

// The token shown of a hold is the one by which enough of the nodes know it: one of them
// may just be joining it.
func TestTokenShown(t *testing.T) {
	for _, c := range []struct {
		need   int
		shown  []uint64
		silent int
		want   uint64
		others int // nodes that have no part
	}{
		{2, []uint64{9, 9, 9}, 0, 9, 0},
		{2, []uint64{5, 9, 9}, 0, 9, 0},
		{2, []uint64{9, 9, 12}, 0, 9, 0},
		{2, []uint64{9, 9}, 1, 9, 0},
		{2, []uint64{9}, 1, 9, 0},
		{2, []uint64{9, 12}, 1, 12, 0}, // or 9
		{2, []uint64{9, 12}, 0, 0, 1},  // nobody has the lock yet
		{2, []uint64{9, 12}, 0, 12, 0},
		{3, []uint64{9, 9, 12, 14}, 1, 9, 0},
		{3, []uint64{5, 9, 7}, 0, 9, 0}, // all are needed
	} {
		b := &Backend{need: c.need, nodes: make([]*node, len(c.shown)+c.silent+c.others)}
		var parts []nodeParty
		for node, token := range c.shown {
			p := nodeParty{node: node}
			p.Token = token
			parts = append(parts, p)
		}
		if got := b.tokenOf(parts, c.silent); got != c.want {
			t.Errorf("nodes show %v, %d are silent: the token is %d, want %d", c.shown, c.silent, got, c.want)
		}
	}
}
