package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program needs the root and one backend.
const program = `package main

import (
	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis"
)

func main() { _ = dlock.Open }
`

// tryCommand installs the command line as people do.
func (r *release) tryCommand(ctx context.Context, bin string) error {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	env := r.env
	defer func() { r.env = env }()
	r.env = append(r.env, "GOBIN="+bin)
	if _, err := r.command(ctx, bin, "go", "install", libraryPath+"/cmd/dlock@"+r.version); err != nil {
		return err
	}
	said, err := r.command(ctx, bin, filepath.Join(bin, "dlock"), "--version")
	if err != nil {
		return err
	}
	if !strings.Contains(said, r.version) {
		return fmt.Errorf("the command says that it is %q", said)
	}
	fmt.Fprintf(r.out, "go install: %s\n", said)
	return nil
}

// tryProgram builds a program that requires the root and one backend, and says what it
// has to require beside them.
func (r *release) tryProgram(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/program"},
		{"get", libraryPath + "@" + r.version, libraryPath + "/backend/redis@" + r.version},
		{"mod", "tidy"},
		{"build", "-o", os.DevNull, "."},
	} {
		if _, err := r.command(ctx, dir, "go", args...); err != nil {
			return err
		}
	}
	list, err := r.command(ctx, dir, "go", "list", "-m", "all")
	if err != nil {
		return err
	}
	for _, driver := range []string{"go.etcd.io", "google.golang.org/grpc", "jackc/pgx", "go-zookeeper", "cobra"} {
		if strings.Contains(list, driver) {
			return fmt.Errorf("a program with Redis alone has %s among its modules:\n%s", driver, list)
		}
	}
	fmt.Fprintf(r.out, "a program with the root and Redis has %d modules beside itself:\n%s\n", strings.Count(list, "\n"), list)
	return nil
}

// command runs a command, and returns what it prints.
func (r *release) command(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, r.env
	out, err := c.Output()
	if err != nil {
		said := ""
		if failed, ok := err.(*exec.ExitError); ok {
			said = string(failed.Stderr)
		}
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// removeAll removes a folder in which there is a module cache, whose files are read-only.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
