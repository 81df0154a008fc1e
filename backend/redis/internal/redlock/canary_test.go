package redlock

import (
	"testing"

	_ "github.com/dlock-go/dlock/backend/redis"
	"github.com/dlock-go/dlock/internal/canary"
)

// TestNoSecrets shows no password of a server that is of no use.
func TestNoSecrets(t *testing.T) {
	canary.CheckOpens(t, []string{"-NOAUTH Authentication required.\r\n"},
		"redlock://user:SECRET@HOST,127.0.0.1:1,127.0.0.1:2",
		"redlocks://user:SECRET@HOST,127.0.0.1:1,127.0.0.1:2")
}
