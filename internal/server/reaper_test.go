package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hold is what the re-executed test binary does: it says where its servers keep
// their files, runs one, says when that is healthy and waits to be killed.
func hold(name string) {
	reaper, err := theReaper()
	if err != nil {
		panic(err)
	}
	fmt.Println(reaper.dir)
	if _, err := New(subjects[name].kind); err != nil {
		panic(err)
	}
	fmt.Println("healthy")
	select {}
}

// A holder is a test binary that runs a server.
type holder struct {
	cmd    *exec.Cmd
	output *bufio.Reader
	dir    string
}

func startHolder(t *testing.T, name string) *holder {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), holderEnv+"="+name)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	h := &holder{cmd: cmd, output: bufio.NewReader(output)}
	t.Cleanup(h.kill)
	h.dir = h.line(t)
	return h
}

func (h *holder) line(t *testing.T) string {
	t.Helper()
	line, err := h.output.ReadString('\n')
	must(t, err)
	return strings.TrimSuffix(line, "\n")
}

func (h *holder) kill() {
	_ = h.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, h.output)
	_ = h.cmd.Wait()
}

// processesOf returns the numbers of all processes that name dir as an argument
// or work in it.
func processesOf(dir string) []string {
	var pids []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		arguments, _ := os.ReadFile(filepath.Join(entry, "cmdline"))
		workDir, _ := os.Readlink(filepath.Join(entry, "cwd"))
		if bytes.Contains(arguments, []byte(dir)) || strings.HasPrefix(workDir, dir) {
			pids = append(pids, filepath.Base(entry))
		}
	}
	return pids
}

func wantNothingOf(t *testing.T, dir string) {
	t.Helper()
	eventually(t, "servers and their directory are gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && len(processesOf(dir)) == 0
	})
}

func TestNothingSurvivesAKilledTestBinary(t *testing.T) {
	for name := range subjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHolder(t, name)
			h.line(t)
			if len(processesOf(h.dir)) == 0 {
				t.Fatal("no server is seen to run")
			}
			h.kill()
			wantNothingOf(t, h.dir)
		})
	}
}

func TestNothingSurvivesAKillDuringAStart(t *testing.T) {
	for name := range subjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHolder(t, name)
			eventually(t, "a server is being started", func() bool { return len(processesOf(h.dir)) > 0 })
			h.kill()
			wantNothingOf(t, h.dir)
		})
	}
}
