package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	first, _, _ := strings.Cut(dir, "/")
	return own && !slices.Contains([]string{"bench", "examples", "internal", "tools"}, first) &&
		!strings.HasSuffix(dir, "/integration")
}

// tag is what git calls a version of the module.
func (m *module) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return filepath.ToSlash(m.dir) + "/" + version
}

// readModules reads all modules of a repository, also those that go.work does not name,
// each after those that it requires.
func readModules(repo string) (all []*module, err error) {
	err = filepath.WalkDir(repo, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != repo && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		m := &module{}
		if m.dir, err = filepath.Rel(repo, filepath.Dir(name)); err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if m.file, err = modfile.Parse(name, text, nil); err != nil {
			return err
		}
		all = append(all, m)
		return nil
	})
	if err != nil {
		return nil, err
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
