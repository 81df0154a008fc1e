package main

import (
	"strings"
	"testing"
)

// Columns stand below one another for texts of any script.
func TestTableAligns(t *testing.T) {
	var b strings.Builder
	var x table
	x.add("NAME", "N")
	x.add("日本", "1")
	x.add("e\u0301te\u0301", "2")
	x.add("longer", "3")
	if err := x.write(&b); err != nil || b.String() != "NAME    N\n日本    1\ne\u0301te\u0301     2\nlonger  3\n" {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestShortened(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"orders/42", 9, "orders/42"},
		{"orders/4711", 9, "orde…4711"},
		{"orders/4711", 8, "ord…4711"},
		{"日本日本", 5, "日…本"},
		{"日本日本", 6, "日…本"},
		{"abc", 1, "…"},
	} {
		if got := shortened(c.text, c.most); got != c.want || cells(got) > c.most {
			t.Errorf("%q in %d cells is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

// A table that is too wide loses its columns in the order that was given, and no more of
// them than needed.
func TestTableFits(t *testing.T) {
	for line, want := range map[int]string{
		30: "NAME         HOLDER  MODE  FOR\norders/4711  host7   shr   1s\n",
		25: "NAME    HOLDER  MODE  FOR\nor…711  host7   shr   1s\n",
		24: "NAME         HOLDER  FOR\norders/4711  host7   1s\n",
		16: "NAME         FOR\norders/4711  1s\n",
		12: "NAME     FOR\nord…711  1s\n",
		5:  "NAME    FOR\nor…711  1s\n",
	} {
		var x table
		x.add("NAME", "HOLDER", "MODE", "FOR")
		x.add("orders/4711", "host7", "shr", "1s")
		x.fit(line, map[string]int{"NAME": 6, "HOLDER": 6}, "MODE", "HOLDER")
		var b strings.Builder
		if err := x.write(&b); err != nil || b.String() != want {
			t.Errorf("in %d cells:\n%swant\n%s", line, b.String(), want)
		}
	}
}
