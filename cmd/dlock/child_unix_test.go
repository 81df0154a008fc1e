//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestStopIsNotAnEnd has a command that any signal has stopped count as one that goes on.
func TestStopIsNotAnEnd(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		if got := changeOf(syscall.WaitStatus(0x7f | uint32(s)<<8)); got.stop != s {
			t.Errorf("stopped by %v: got %+v", s, got)
		}
	}
	for _, ended := range []syscall.WaitStatus{0, 7 << 8, syscall.WaitStatus(syscall.SIGKILL), 0x80 | syscall.WaitStatus(syscall.SIGQUIT)} {
		if got := changeOf(ended); got != (change{status: ended}) {
			t.Errorf("ended with %#x: got %+v", uint32(ended), got)
		}
	}
}

// TestSystemTellsOfAStop compares what wait4 says here with what changeOf reads.
func TestSystemTellsOfAStop(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == nil {
			break
		}
		if err != syscall.EINTR {
			t.Fatal(err)
		}
	}
	if got := changeOf(status); got.stop != syscall.SIGSTOP {
		t.Errorf("got %+v of %#x", got, uint32(status))
	}
}
