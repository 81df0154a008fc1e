package main

import (
	"testing"
	"time"
)

// FuzzSeconds reads times as people write them. What is shown is read as the same.
func FuzzSeconds(f *testing.F) {
	for _, text := range []string{"5", "1m30s", "-1", "1e300", "nan", "inf", "0x1p-1", "1_0", "", "9223372036", "9223372036.9", "-9223372036.8547758"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again seconds
		if s.Set(text) != nil {
			return
		}
		if shown := s.String(); shown != "" && (again.Set(shown) != nil || again != s) {
			t.Errorf("%q is %v, which is %v", text, time.Duration(s), time.Duration(again))
		}
		if len(text) > 0 && text[0] != '-' && s < 0 {
			t.Errorf("%q is %v", text, time.Duration(s))
		}
	})
}
