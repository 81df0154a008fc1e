package simulation

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/simulation/slowsync"
)

var standing = flag.Bool("simulation.standstill", false, "processes of clients stand still now and then, as a whole")

// TestStandstills runs plans in which processes stand still.
func TestStandstills(t *testing.T) {
	if os.Getenv("SIMULATION_WORKER") != "" {
		return
	}
	*standing = true
	defer func() { *standing = false }()
	search(t, 1, 100, 15*time.Second)
}

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

// stoppable builds a worker in which a process can be stopped. That takes a toolchain whose
// scheduler is known: with another one there is no such worker, and nothing is promised of standstills.
func stoppable(t *testing.T) string {
	t.Helper()
	if slowsync.HasProcesses() { // it is one
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return self
	}
	dir := t.TempDir()
	replace, err := processes(slowed(t, dir), dir)
	if errors.Is(err, errUnknown) {
		t.Fatalf("%s: %v: edits have to change it elsewhere; until they do, set GOTOOLCHAIN to a version for which they were written", runtime.Version(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	binary, list := filepath.Join(dir, "simulation.test"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err == nil {
		err = os.WriteFile(list, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("the runtime with processes does not build: %v\n%s", err, out)
	}
	standsStill(t, binary)
	return binary
}

// withProcesses adds what processes need to a list of what stands for other files. Mutexes of the
// library are as they are there: nobody is stopped at one.
func withProcesses(list string) error {
	var files struct{ Replace map[string]string }
	text, err := os.ReadFile(list)
	if err == nil {
		err = json.Unmarshal(text, &files)
	}
	if err == nil {
		_, err = processes(files.Replace, filepath.Dir(list))
	}
	if err == nil {
		text, err = json.Marshal(files)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(list, text, 0o600)
}

var errUnknown = errors.New("the scheduler is another one")

// processes adds to what stands for other files what processes need.
func processes(replace map[string]string, dir string) (map[string]string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src")
	for _, e := range edits {
		path := filepath.Join(library, e.path)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if strings.Count(string(text), e.old) != 1 {
			return nil, errUnknown
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
	replace[filepath.Join(here, "slowsync", "patient", "patient.go")] = added("patient.go")
	return replace, nil
}
