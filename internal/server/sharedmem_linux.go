package server

import (
	"fmt"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
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
	id, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return os.NewSyscallError("shmctl", err)
}
