package etcd_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/canary"
)

// TestNoSecrets shows no password of a server that is of no use.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	canary.CheckOpens(t, []string{"HTTP/1.1 400 Bad Request\r\n\r\n" + canary.Secret},
		"etcd://user:SECRET@HOST",
		"etcds://user:SECRET@HOST",
		"etcd://user:SECRET@HOST?ca=/none",
		"etcd://user:SECRET@HOST,HOST/prefix")
}
