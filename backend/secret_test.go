package backend

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestSecret(t *testing.T) {
	const canary = "c4n4ry"
	s, empty := NewSecret(canary), NewSecret("")
	if s.Reveal() != canary || empty.Reveal() != "" || s != NewSecret(canary) || s == NewSecret("other") || !s.Equal(s) {
		t.Error("a secret is not its text")
	}
	if !empty.IsZero() || empty != (Secret{}) || empty.String() != "" || s.IsZero() || s.String() == "" {
		t.Error("an empty secret is not told from another")
	}
	var decoded Secret
	if err := json.Unmarshal([]byte(`"`+canary+`"`), &decoded); err != nil || decoded != s {
		t.Errorf("decoded as %q: %v", decoded.Reveal(), err)
	}
	u, err := ParseURL("x://user:" + canary + "@host")
	if err != nil || u.Password != s {
		t.Fatal(err)
	}
	type hidden struct {
		s Secret
		p *Secret
		u URL
		c Config
	}
	for _, v := range []any{s, &s, hidden{s, &s, *u, Config{URL: u}}, u, Config{URL: u}, []Secret{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) {
				t.Errorf("%s of a %T: %s", verb, v, text)
			}
		}
		text, err := json.Marshal(v)
		if strings.Contains(string(text)+fmt.Sprint(err), canary) {
			t.Errorf("a %T is encoded as %s, %v", v, text, err)
		}
	}
}

func TestSecretsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 100 {
				text := fmt.Sprint(i%2, j)
				if got := NewSecret(text).Reveal(); got != text {
					t.Errorf("%q is %q", text, got)
				}
			}
		})
	}
	all.Wait()
}
