package zk_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/canary"
)

// TestNoSecrets shows no password of a server that is of no use.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	canary.CheckOpens(t, []string{"\x00\x00\x00\x01x"},
		"zk://user:SECRET@HOST",
		"zk://user:SECRET@HOST?tls=true",
		"zk://user:SECRET@HOST?acl=x")
}
