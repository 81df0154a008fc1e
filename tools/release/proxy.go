package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const licence = "LICENSE"

// A proxy is a folder that the go command takes for a module proxy.
type proxy string

// add lays a version of a module out: what the go command would find under its tag. A
// module without a licence of its own gets that of the repository, as there.
func (p proxy) add(repo string, m *module, version string) error {
	if err := copyMissing(filepath.Join(repo, m.dir, licence), filepath.Join(repo, licence)); err != nil {
		return err
	}
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

// copyMissing copies a file, unless there is one already.
func copyMissing(to, from string) error {
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
