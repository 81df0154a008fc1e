package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A proxy is a folder that the go command takes for a module proxy.
type proxy string

// add lays a version of a module out: what the go command would find under its tag.
func (p proxy) add(repo string, m *module, version string) error {
	escaped, err := gomodule.EscapePath(m.path())
	if err != nil {
		return err
	}
	dir := filepath.Join(string(p), escaped, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(repo, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(
		zip.CreateFromDir(archive, gomodule.Version{Path: m.path(), Version: version}, filepath.Join(repo, m.dir)),
		archive.Close(),
		os.WriteFile(filepath.Join(dir, version+".info"), info, 0o644),
		os.WriteFile(filepath.Join(dir, version+".mod"), mod, 0o644),
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
	)
}
