//go:build !linux

package server

// markSharedMemory does nothing: only Linux has files that say which process uses which
// segment.
func markSharedMemory([]int) error { return nil }
