//go:build jvm

package redisson

import (
	"testing"

	"github.com/dlock-go/dlock/examples/comingfrom/internal/java"
	"github.com/dlock-go/dlock/internal/server"
)

// The programs before are those in Java, on the real library.
func TestChangeOverFromJava(t *testing.T) {
	addr := server.Start(t, server.Redis{}).Addr()
	v := versions(t, addr)
	for i := range v.Before {
		var err error
		if v.Before[i], err = java.Before(t.Context(), "redisson", addr); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A JVM has our lock by the command line, beside Go in between and Go after.
func TestJavaStays(t *testing.T) {
	addr := server.Start(t, server.Redis{}).Addr()
	v := versions(t, addr)
	var err error
	if v.After[0], err = java.After(t.Context(), t.TempDir(), "redis://"+addr); err != nil {
		t.Fatal(err)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What the page says of the library.
func TestClaims(t *testing.T) {
	addr := server.Start(t, server.Redis{}).Addr()
	if err := java.Claims(t.Context(), "redisson", addr); err != nil {
		t.Fatal(err)
	}
}
