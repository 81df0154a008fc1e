package quorum

import "testing"

// A node that has not raised its token yet shows one that may have been another hold's,
// which does not break this one.
func TestTokenThatOneNodeShows(t *testing.T) {
	b := &Backend{need: 2}
	for _, c := range []struct {
		shown  []uint64
		silent int
		token  uint64
		want   bool
	}{
		{[]uint64{5, 9, 9}, 0, 5, false},
		{[]uint64{5, 9, 9}, 0, 9, true},
		{[]uint64{9, 9, 12}, 0, 12, false},
		{[]uint64{9, 12}, 0, 9, true}, // of a node that joined later
		{[]uint64{9}, 1, 9, true},
		{[]uint64{9}, 0, 9, false},
	} {
		var parts []nodeParty
		for node, token := range c.shown {
			p := nodeParty{node: node}
			p.Token = token
			parts = append(parts, p)
		}
		if got := b.mayHaveToken(parts, c.token, c.silent); got != c.want {
			t.Errorf("nodes show %v, %d are silent: token %d is the hold's: %v", c.shown, c.silent, c.token, got)
		}
	}
}
