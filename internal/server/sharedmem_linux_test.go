package server

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

func TestKilledPostgresLeavesNoSharedMemory(t *testing.T) {
	s := Start(t, Postgres{})
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.Pid()))
	must(t, err)
	segment := segmentPattern.FindSubmatch(maps)
	if segment == nil {
		t.Fatal("a running postgres has no shared memory")
	}
	must(t, s.Kill())
	eventually(t, "the segment is gone", func() bool { return !segmentExists(t, string(segment[1])) })
}

func segmentExists(t *testing.T, number string) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/sysvipc/shm")
	must(t, err)
	return regexp.MustCompile(`(?m)^ *-?\d+ +` + number + ` `).Match(table)
}
