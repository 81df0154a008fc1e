package server

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
)

// segmentPattern finds System V segments in /proc/PID/maps, which shows their
// numbers as inodes.
var segmentPattern = regexp.MustCompile(`(?m) (\d+) +/SYSV`)

// markSharedMemory marks the System V segments of processes for removal, so that
// they go with the last process that uses them. A killed Postgres would leave its
// segment behind, and a machine has room for some thousands only.
func markSharedMemory(pids []int) error {
	for _, pid := range pids {
		// Without the file the process is gone, and its use of segments too.
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		for _, match := range segmentPattern.FindAllSubmatch(maps, -1) {
			if err := removeSegment(string(match[1])); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeSegment(number string) error {
	const remove = 0 // IPC_RMID
	id, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), remove, 0); errno != 0 {
		return os.NewSyscallError("shmctl", errno)
	}
	return nil
}
