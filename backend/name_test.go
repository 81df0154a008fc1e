package backend

import (
	"net/url"
	"strings"
	"testing"
)

func TestEncodeName(t *testing.T) {
	for name, want := range map[string]string{
		"orders-42_a.b:c@d": "orders-42_a.b:c@d",
		"orders/42":         "orders%2F42",
		"..":                "%2E.",
		"{tag}":             "%7Btag%7D",
		"\x00\xff":          "%00%FF",
		"a%2Fb":             "a%252Fb",
	} {
		if got := EncodeName(name); got != want {
			t.Errorf("EncodeName(%q) = %q, want %q", name, got, want)
		}
	}
}

// Two names never share a key: the encoding can be undone, and short names
// stay within their limit.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"%2", "%zz", "%41", "", "a", "a/b", "/a", "..", ".", "{}", "%2F", "a%", "\x00", "é", strings.Repeat("x", 1024)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		enc := EncodeName(name)
		back, err := url.PathUnescape(enc)
		if err != nil || back != name {
			t.Errorf("%q became %q and %q (%v)", name, enc, back, err)
		}
		if strings.ContainsAny(enc, "/{}~ \x00\n") || strings.HasPrefix(enc, ".") {
			t.Errorf("%q has a byte that means something", enc)
		}
		if back, ok := DecodeName(enc); !ok || back != name {
			t.Errorf("%q is decoded as %q (%v)", enc, back, ok)
		}
		if back, ok := DecodeName(name); ok && EncodeName(back) != name {
			t.Errorf("%q is decoded as %q, whose key it is not", name, back)
		}
		short := ShortName(name, 100)
		if len(short) > 100 || len(enc) <= 100 && short != enc || len(enc) > 100 && !strings.Contains(short, "~") {
			t.Errorf("short form of %q is %q", name, short)
		}
	})
}

// No two names share a key in an alphabet of the caller's, also where keys are short.
func TestEncoding(t *testing.T) {
	e := NewEncoding("-_/.", '=')
	seen := make(map[string]string)
	long := strings.Repeat("x", 200)
	for _, name := range []string{
		"", "a", "A", "a/b", "a.b", ".a", "=2Ea", "=", "==", "%", "a:b", "~", "\x00", "\xff", "é", long, long + "x", "=" + long,
	} {
		key := e.Short(name, 100)
		if len(key) > 100 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/.=") != "" {
			t.Errorf("%q: the key is %q", name, key)
		}
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %q share %q", name, other, key)
		}
		seen[key] = name
	}
	if got := e.Encode("a b.c"); got != "a=20b.c" {
		t.Errorf("got %q", got)
	}
}

func TestEncodingWithAnEscapeThatIsKept(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewEncoding("-=", '=')
}
