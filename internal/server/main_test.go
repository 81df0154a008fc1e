package server

import (
	"os"
	"testing"
)

// holderEnv makes the test binary a process that runs a server until it is killed.
const holderEnv = "DLOCK_TEST_HOLD_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(holderEnv); kind != "" {
		hold(kind)
	}
	os.Exit(m.Run())
}
