package backend

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// FuzzParseURL reads URLs with a password: nothing that is made of one shows it.
func FuzzParseURL(f *testing.F) {
	const canary = "c4n4ryInAURL"
	for _, s := range [][2]string{
		{"x://user:", "@h:1,[::1]:2/p?a=b"}, {"x://", "@h"}, {"x://u:", "%zz@h"}, {"x://u:", "/@h"}, {"", "://"}, {"x://u:", "@h#f"}, {"x://u:", "@:0"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		u, err := ParseURL(before + canary + after)
		if err != nil {
			if !errors.Is(err, ErrInvalidConfig) || strings.Contains(err.Error(), canary) {
				t.Errorf("%v", err)
			}
			return
		}
		shown := fmt.Sprintf("%v %+v %#v %s %q %v %+v", u, u, u, u, u, *u, *u)
		if !strings.Contains(u.Password.Reveal(), canary) {
			return // it is no password
		}
		elsewhere := strings.Contains(u.Path+strings.Join(u.Hosts, ",")+u.Scheme, canary)
		if strings.Contains(shown, canary) && !elsewhere {
			t.Errorf("shown: %s", shown)
		}
		for _, hp := range u.HostPorts("1") {
			if hp == "" {
				t.Error("an empty host")
			}
		}
	})
}

// FuzzEncoding encodes in an alphabet of the caller's: no two names share a key.
func FuzzEncoding(f *testing.F) {
	f.Add("a", "A", "-_", uint8('='))
	f.Add("a=62", "ab", "-", uint8('='))
	f.Add("é", "\xc3", "./", uint8('%'))
	f.Fuzz(func(t *testing.T, a, b, kept string, escape uint8) {
		var e *Encoding
		if func() (bad bool) {
			defer func() { bad = recover() != nil }()
			e = NewEncoding(kept, escape)
			return false
		}() {
			return // it says so at once
		}
		if x, y := e.Encode(a), e.Encode(b); (x == y) != (a == b) {
			t.Errorf("%q and %q are %q and %q", a, b, x, y)
		}
		if x, y := e.Short(a, 100), e.Short(b, 100); (x == y) != (a == b) || len(x) > 100 {
			t.Errorf("%q and %q are %q and %q in short", a, b, x, y)
		}
	})
}
