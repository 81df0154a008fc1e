//go:build !linux

package main

import (
	"os"
	"time"
)

// self is the file of the program that runs.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// hideSelf does nothing: what keeps processes of one user from reading each other's
// environment and memory is there on Linux alone.
func hideSelf() {}

func sleepShort(d time.Duration) { time.Sleep(d) }
