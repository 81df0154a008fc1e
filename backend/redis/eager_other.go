//go:build !linux

package redis

const canLook = false

func readNow(uintptr, []byte) (n int, empty bool) { return 0, true }
