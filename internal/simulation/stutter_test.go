package simulation

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var stuttering = flag.Bool("simulation.stutter", false, "goroutines of the library are stopped now and then where they take or leave a mutex")

// TestStutters runs plans with goroutines that are stopped, in memory: with servers, virtual time
// stands still now and then, and a plan has to be given up.
func TestStutters(t *testing.T) {
	*stuttering, *on = true, "memory"
	defer func() { *stuttering, *on = false, "" }()
	search(t, 1, 100, 10*time.Second)
}

// isStuck reports whether virtual time stood still: somebody waits for a mutex of the client
// library, with which a connection is made for a subscription, and who makes it waits for one
// whose owner has been stopped.
func isStuck(r *Result) bool {
	return len(r.Violations) == 1 && strings.Contains(r.Violations[0].Text, "(*PubSub).conn")
}

// mutexes is the package that a file has its mutexes from.
func mutexes(path string) string {
	const slow = "github.com/dlock-go/dlock/internal/simulation/slowsync"
	if filepath.Base(filepath.Dir(path)) == "simulation" {
		return slow + "/patient"
	}
	return slow
}

// slowed writes the files of the library that import package sync anew, and returns which stand
// for which.
func slowed(t *testing.T, dir string) map[string]string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	replace := make(map[string]string)
	slow := func(path string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name == "slowsync" || strings.HasPrefix(name, ".") || name == "testdata"):
			return fs.SkipDir
		case e.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		other := strings.Replace(string(text), "\n\t\"sync\"\n", "\n\tsync \""+mutexes(path)+"\"\n", 1)
		if other == string(text) {
			return nil
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, root), "/", "_"))
		return os.WriteFile(replace[path], []byte(other), 0o600)
	}
	own, err := filepath.Glob(filepath.Join(root, "*.go"))
	for _, path := range own {
		info, statErr := os.Stat(path)
		err = errors.Join(err, statErr)
		if statErr == nil {
			err = errors.Join(err, slow(path, fs.FileInfoToDirEntry(info), nil))
		}
	}
	for _, under := range []string{"backend", "internal"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, under), slow))
	}
	if err != nil {
		t.Fatal(err)
	}
	return replace
}
