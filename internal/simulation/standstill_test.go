package simulation

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var standing = flag.Bool("simulation.standstill", false, "processes of clients stand still now and then, as a whole")

// TestStandstills runs plans in which processes stand still.
func TestStandstills(t *testing.T) {
	*standing = true
	defer func() { *standing = false }()
	search(t, 1, 100, 15*time.Second)
}

// toolchain is the version of Go that edits are for.
const toolchain = "go1.26.8"

// An edit changes one place of a file of the toolchain.
type edit struct{ path, old, other string }

// edits have the runtime set goroutines aside whose process is stopped, has timers run what
// belongs to a process there, and virtual time go on while somebody waits for a mutex.
var edits = []edit{
	{
		"runtime/proc.go",
		"\tif sched.disable.user && !schedEnabled(gp) {\n\t\t// Scheduling of this",
		"\tif setAside(gp) {\n\t\tgoto top\n\t}\n\tif sched.disable.user && !schedEnabled(gp) {\n\t\t// Scheduling of this",
	},
	{
		"runtime/runtime2.go",
		"\twaitReasonSynctestRun:           true,\n",
		"\twaitReasonSynctestRun: true,\n\twaitReasonSyncMutexLock: true,\n\twaitReasonSyncRWMutexRLock: true,\n\twaitReasonSyncRWMutexLock: true,\n",
	},
	{"time/sleep.go", "newTimer(when(d), 0, goFunc, f, nil)", "newTimer(when(d), 0, goFunc, inProcess(f), nil)"},
}

// linked is the name of the link to the toolchain that edits are for. The go command replaces no file where it
// keeps those that it has fetched, by that path.
const linked = "go"

// linkToolchain makes that link in dir, and has the go command fetch the toolchain first where it is another one.
func linkToolchain(dir string) (root string, err error) {
	c := exec.Command("go", "env", "GOROOT")
	c.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain)
	found, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", toolchain, err)
	}
	root = filepath.Join(dir, linked)
	return root, os.Symlink(strings.TrimSpace(string(found)), root)
}

// processes adds to what stands for other files what processes need.
func processes(replace map[string]string, dir string) (map[string]string, error) {
	root, err := linkToolchain(dir)
	if err != nil {
		return nil, err
	}
	library := filepath.Join(root, "src")
	for _, e := range edits {
		path := filepath.Join(library, e.path)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if strings.Count(string(text), e.old) != 1 {
			return nil, fmt.Errorf("%s has another %s than edits are for", toolchain, e.path)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(e.path, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(text), e.old, e.other, 1)), 0o600); err != nil {
			return nil, err
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	added := func(name string) string { return filepath.Join(here, "testdata", "process", name) }
	replace[filepath.Join(library, "runtime", "process.go")] = added("runtime.go")
	replace[filepath.Join(library, "time", "process.go")] = added("time.go")
	replace[filepath.Join(here, "slowsync", "stops.go")] = added("slowsync.go")
	replace[filepath.Join(here, "slowsync", "patient", "mutex.go")] = added("mutex.go")
	return replace, nil
}
