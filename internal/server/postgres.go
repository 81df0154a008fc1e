package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Postgres is a cluster whose superuser "postgres" needs no password on the
// loopback address. What it has committed survives a kill of its processes; it
// does not wait for the disk, so a crash of the machine may lose it.
type Postgres struct {
	BinDir   string   // holds initdb and postgres; empty looks for it
	Settings []string // more lines of configuration, as in "max_connections=20"
}

// postgresDefaults leave the full page writes on: a kill may cut a page in two.
// Dynamic shared memory is kept in files of the data directory, which go with it.
var postgresDefaults = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=",
	"fsync=off",
	"shared_buffers=16MB",
	"dynamic_shared_memory_type=mmap",
}

func (Postgres) name() string { return "postgres" }

func (p Postgres) program(name string) (string, error) {
	if p.BinDir != "" {
		return findBinary(filepath.Join(p.BinDir, name), name)
	}
	return findBinary("", name, "/usr/lib/postgresql/*/bin/"+name, "/usr/pgsql-*/bin/"+name)
}

func (p Postgres) command(dir string, port int) (*exec.Cmd, error) {
	program, err := p.program("postgres")
	if err != nil {
		return nil, err
	}
	attr, err := postgresAccount(dir)
	if err != nil {
		return nil, err
	}
	if err := p.initialise(dir, attr); err != nil {
		return nil, err
	}
	args := []string{"-D", dir, "-p", strconv.Itoa(port)}
	for _, setting := range slices.Concat(postgresDefaults, p.Settings) {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.SysProcAttr = dir, attr
	return cmd, nil
}

// postgresAccount hands dir to the user "postgres" and returns how to become
// that user when we are root, whom Postgres refuses.
func postgresAccount(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return attr, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("dlock: postgres does not run as root and its own user is missing: %w", err)
	}
	uid, uidErr := strconv.Atoi(account.Uid)
	gid, gidErr := strconv.Atoi(account.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(dir, uid, gid)
}

// initialise puts a new cluster into an empty dir. In another it removes the lock
// file of a killed server, whose process number may belong to somebody else now.
func (p Postgres) initialise(dir string, attr *syscall.SysProcAttr) error {
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		return removeIfThere(filepath.Join(dir, "postmaster.pid"))
	}
	initdb, err := p.program("initdb")
	if err != nil {
		return err
	}
	template, err := postgresTemplate(initdb)
	if err != nil {
		return err
	}
	cmd := exec.Command("cp", "-R", template+"/.", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: attr.Credential}
	return runToEnd(cmd)
}

// postgresTemplates has, for each initdb, a function that returns its template.
var postgresTemplates sync.Map

// postgresTemplate returns the directory of a cluster that is made once and never runs:
// a copy of it is a tenth of the work of initdb. All copies have one system identifier.
func postgresTemplate(initdb string) (string, error) {
	made, _ := postgresTemplates.LoadOrStore(initdb, sync.OnceValues(func() (string, error) {
		return makePostgresTemplate(initdb)
	}))
	return made.(func() (string, error))()
}

func makePostgresTemplate(initdb string) (string, error) {
	reaper, err := theReaper()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(reaper.dir, "postgres-template-")
	if err != nil {
		return "", err
	}
	attr, err := postgresAccount(dir)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(initdb, "--pgdata", dir, "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--wal-segsize=1", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, environment(dir), attr
	return dir, runToEnd(cmd)
}

// runToEnd runs a command that is no server; what it says goes into the error.
func runToEnd(cmd *exec.Cmd) error {
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	proc, err := start(cmd)
	if err != nil {
		return err
	}
	<-proc.done
	if state := cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%v\n%s", state, output.Bytes())
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// probe says hello as "postgres" and goodbye at once. A request to authenticate
// is as good as a session: whoever sets a password has a server that is up.
func (Postgres) probe(ctx context.Context, addr string) error {
	reply, err := ask(ctx, addr, postgresGreeting())
	if err == nil && !strings.HasPrefix(reply, "R") {
		return fmt.Errorf("postgres answers %q", reply)
	}
	return err
}

// postgresGreeting is a startup message of protocol 3.0 and a Terminate message.
func postgresGreeting() string {
	const parameters = "user\x00postgres\x00database\x00postgres\x00\x00"
	message := binary.BigEndian.AppendUint32(nil, uint32(8+len(parameters)))
	message = binary.BigEndian.AppendUint32(message, 3<<16)
	return string(message) + parameters + "X\x00\x00\x00\x04"
}

func (p Postgres) version(ctx context.Context, _ string) (string, error) {
	program, err := p.program("postgres")
	if err != nil {
		return "", err
	}
	return versionOf(ctx, program, "--version")
}

// shutdown is the fast one, which does not wait for clients to leave.
func (Postgres) shutdown() syscall.Signal { return syscall.SIGINT }
