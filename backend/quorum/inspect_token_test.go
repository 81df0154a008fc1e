package quorum

import (
	"slices"
	"testing"
)

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
		parts := partsThatShow(c.shown)
		if got := b.mayHaveToken(parts, c.token, c.silent); got != c.want {
			t.Errorf("nodes show %v, %d are silent: token %d is the hold's: %v", c.shown, c.silent, c.token, got)
		}
	}
}

func partsThatShow(tokens []uint64) (parts []nodeParty) {
	for node, token := range tokens {
		p := nodeParty{node: node}
		p.Token = token
		parts = append(parts, p)
	}
	return parts
}

// The token that is shown of a hold breaks it, also when one of the nodes that granted has
// lost the hold, and others have joined it with greater tokens.
func TestTokenShownBreaks(t *testing.T) {
	for _, c := range []struct {
		need   int
		shown  []uint64
		silent int
		want   uint64
	}{
		{2, []uint64{9, 9, 9}, 0, 9},
		{2, []uint64{5, 9, 9}, 0, 9},
		{2, []uint64{9, 9, 12}, 0, 9},
		{2, []uint64{9, 12}, 0, 9},
		{2, []uint64{9, 14, 12}, 0, 12}, // 9 or 12, and either breaks it
		{2, []uint64{9, 12}, 1, 12},
		{2, []uint64{9}, 1, 9},
		{3, []uint64{9, 9, 12, 14}, 0, 9},
	} {
		b := &Backend{need: c.need}
		parts := partsThatShow(c.shown)
		got := b.mergeHolder(slices.Clone(parts), c.silent).Token
		if got != c.want || !b.mayHaveToken(parts, got, c.silent) {
			t.Errorf("nodes show %v, %d are silent: the token is %d, want %d", c.shown, c.silent, got, c.want)
		}
	}
}
