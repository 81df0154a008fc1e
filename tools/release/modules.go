package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// libraryPath is the path of the root module, and the beginning of all others.
const libraryPath = "github.com/dlock-go/dlock"

// A module is one of this repository.
type module struct {
	dir  string // in the repository, "." for the root
	file *modfile.File
}

func (m *module) path() string { return m.file.Module.Mod.Path }

// isPublic reports whether people may require the module. One that is called integration
// has nothing but tests.
func (m *module) isPublic() bool {
	if m.path() == libraryPath {
		return true
	}
	dir, own := strings.CutPrefix(m.path(), libraryPath+"/")
	return own && dir != "bench" && !strings.HasPrefix(dir, "internal/") &&
		!strings.HasPrefix(dir, "examples/") && !strings.HasSuffix(dir, "/integration")
}

// tag is what git calls a version of the module.
func (m *module) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return filepath.ToSlash(m.dir) + "/" + version
}

// readModules reads the modules that go.work names, each after those that it requires.
func readModules(repo string) ([]*module, error) {
	text, err := os.ReadFile(filepath.Join(repo, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var all []*module
	for _, use := range work.Use {
		m := &module{dir: filepath.Clean(use.Path)}
		name := filepath.Join(repo, m.dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if m.file, err = modfile.Parse(name, text, nil); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return sortByRequirements(all)
}

// sortByRequirements puts each module after those that it requires.
func sortByRequirements(all []*module) (sorted []*module, err error) {
	here := make(map[string]bool)
	for _, m := range all {
		here[m.path()] = true
	}
	done := make(map[string]bool)
	isReady := func(m *module) bool {
		for _, r := range m.file.Require {
			if here[r.Mod.Path] && !done[r.Mod.Path] {
				return false
			}
		}
		return true
	}
	for len(sorted) < len(all) {
		before := len(sorted)
		for _, m := range all {
			if !done[m.path()] && isReady(m) {
				done[m.path()] = true
				sorted = append(sorted, m)
			}
		}
		if len(sorted) == before {
			return nil, fmt.Errorf("modules require one another in a circle")
		}
	}
	return sorted, nil
}

// requireVersion writes version into each requirement of a module of this repository.
func (m *module) requireVersion(repo, version string) error {
	for _, r := range m.file.Require {
		if r.Mod.Path == libraryPath || strings.HasPrefix(r.Mod.Path, libraryPath+"/") {
			if err := m.file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	m.file.Cleanup()
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(repo, m.dir, "go.mod"), text, 0o644)
}
