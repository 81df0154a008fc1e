package backend_test

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/canary"
)

// TestNoSecrets prints what has a URL with a password in every way.
func TestNoSecrets(t *testing.T) {
	u, err := backend.ParseURL("x://user:" + canary.Secret + "@host/path?sentinel_password=" + canary.Secret)
	if err != nil {
		t.Fatal(err)
	}
	canary.CheckOpen(t, "URL", u)
	canary.CheckOpen(t, "Config", backend.Config{URL: u})
	canary.CheckOpen(t, "Config", &backend.Config{URL: u})
	plain, err := backend.ParseURL("x://user:" + canary.Secret + "@host/path")
	if err != nil {
		t.Fatal(err)
	}
	canary.Check(t, "URL without parameters", *plain)
	canary.Check(t, "Config without parameters", backend.Config{URL: plain})
	for _, one := range u.Each("y") {
		canary.CheckOpen(t, "one host", one)
	}
	canary.Check(t, "unknown parameters", u.Params.Done())
	for _, tail := range []string{"?" + canary.Secret, "?sentinel_password=x&" + canary.Secret} {
		_, err := backend.ParseURL("x://host/path" + tail)
		if !errors.Is(err, backend.ErrInvalidConfig) {
			t.Errorf("a parameter without a value: %v", err)
		}
		canary.Check(t, "a parameter without a value", err)
	}
}
