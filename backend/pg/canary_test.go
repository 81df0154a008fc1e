package pg

import (
	"testing"

	"github.com/dlock-go/dlock/internal/canary"
)

// TestNoSecrets shows no password of a server that is of no use.
func TestNoSecrets(t *testing.T) {
	canary.CheckOpens(t, []string{"R\x00\x00\x00\x08\x00\x00\x00\x03", "E\x00\x00\x00\x10SFATAL\x00C28P01\x00\x00", "N"},
		"postgres://user:SECRET@HOST/db",
		"postgres://user:SECRET@HOST/db?sslmode=disable",
		"postgres://user:SECRET@HOST/db?sslmode=verify-full",
		"postgres://user:SECRET@HOST/db?sslmode=SECRETx",
		"postgres://user:SECRET@HOST/db?connect_timeout=SECRET")
}
