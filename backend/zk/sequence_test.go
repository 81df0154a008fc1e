package zk_test

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend/zk"
	"github.com/dlock-go/dlock/internal/server"
)

// TestSequenceEnds queues clients across the greatest sequence number, which
// the server then gives to everybody.
func TestSequenceEnds(t *testing.T) {
	t.Parallel()
	s := server.Start(t, kind)
	o := &zk.Options{SessionTimeout: time.Minute}
	first := connect(t, o, s.Addr())
	unlock(t, lock(t, first.Mutex("m")))
	seedSequence(t, s, rootOf(t)+"/m", math.MaxInt32-1)
	recovers(t, first.Mutex("other"))

	op := operator(t, s.Addr())
	lease := lock(t, first.Mutex("m"))
	var line []*call
	for i := range 4 {
		line = append(line, start(t, connect(t, o, s.Addr()).Mutex("m")))
		queued(t, op, "m", i+2)
	}
	if names := strings.Join(nodes(t, op, "m"), " "); !strings.Contains(names, "-w-2147483646") || !strings.Contains(names, "-w-2147483647") {
		t.Fatalf("the sequence has not come to its end: %s", names)
	}
	for i, next := range line {
		unlock(t, lease)
		previous := lease.Token()
		lease = next.granted(t)
		if lease.Token() <= previous {
			t.Errorf("token %d came after %d", lease.Token(), previous)
		}
		for _, later := range line[i+1:] {
			if !later.waiting() {
				t.Fatalf("place %d was overtaken", i)
			}
		}
	}
	unlock(t, lease)
}

// seedSequence restarts the server with another count of children ever made in
// a node. Only the server's own file has it.
func seedSequence(t testing.TB, s *server.Server, path string, count uint32) {
	t.Helper()
	dir := regexp.MustCompile(`(?m)^dataDir=(.*)$`).FindStringSubmatch(command(t, s.Addr(), "conf"))
	if dir == nil {
		t.Fatal("the server does not say where its data is")
	}
	must(t, s.Restart(true)) // writes a snapshot
	must(t, s.Stop())
	files, err := filepath.Glob(filepath.Join(dir[1], "snapshot.*"))
	must(t, err)
	patched := 0
	for _, file := range files {
		snapshot, err := os.ReadFile(file)
		must(t, err)
		if patch(snapshot, path, count) {
			must(t, os.WriteFile(file, snapshot, 0o600))
			patched++
		}
	}
	if patched == 0 {
		t.Fatalf("no snapshot of %v has the node", files)
	}
	must(t, s.Restart(true))
}

// patch sets the count of a node in a snapshot, and its checksums anew. A node
// is its path, data, ACL, and a record in which the count comes after four
// times of eight bytes and a version of four.
func patch(snapshot []byte, path string, count uint32) bool {
	seals := sealsOf(snapshot)
	key := append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...)
	at := bytes.Index(snapshot, key)
	if at < 0 {
		return false
	}
	at += len(key)
	if length := int32(binary.BigEndian.Uint32(snapshot[at:])); length > 0 {
		at += int(length)
	}
	const data, acl, before = 4, 8, 4*8 + 4
	binary.BigEndian.PutUint32(snapshot[at+data+acl+before:], count)
	for _, seal := range seals {
		binary.BigEndian.PutUint64(snapshot[seal:], uint64(adler32.Checksum(snapshot[:seal])))
	}
	return true
}

// sealsOf finds the checksums of all that is before them, each followed by "/".
func sealsOf(snapshot []byte) (seals []int) {
	end := []byte{0, 0, 0, 1, '/'}
	for from := 0; ; {
		at := bytes.Index(snapshot[from:], end)
		if at < 0 {
			return seals
		}
		from += at + 1
		seal := from - 1 - 8
		if seal > 0 && binary.BigEndian.Uint64(snapshot[seal:]) == uint64(adler32.Checksum(snapshot[:seal])) {
			seals = append(seals, seal)
		}
	}
}
