//go:build jvm

package shedlock

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/examples/comingfrom/internal/java"
)

// The programs before are those in Java, on the real library.
func TestChangeOverFromJava(t *testing.T) {
	url := start(t)
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "postgres://postgres@"), "/postgres")
	v := versions(t, url)
	for i := range v.Before {
		var err error
		if v.Before[i], err = java.Before(t.Context(), "shedlock", addr); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What the page says of the library.
func TestClaims(t *testing.T) {
	url := start(t)
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "postgres://postgres@"), "/postgres")
	if err := java.Claims(t.Context(), "shedlock", addr); err != nil {
		t.Fatal(err)
	}
}
