//go:build !linux

package conformance_test

import "os/exec"

// dieWithParent does nothing: only on Linux does the kernel do so.
func dieWithParent(*exec.Cmd) {}
