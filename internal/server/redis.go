package server

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Redis is a redis-server without persistence, or with as much of it as a
// restart needs: data survives a kill of the process and not a crash of the
// machine. A server that waits for the disk would keep every client waiting, or
// put off what it has to write and lose that when it is killed.
type Redis struct {
	Binary     string   // path of redis-server; empty looks for one
	AppendOnly bool     // write every command to a file before the reply, for restarts with data
	Args       []string // more directives, as in "--requirepass", "secret"
}

func (Redis) name() string { return "redis" }

func (r Redis) binary() (string, error) {
	return findBinary(r.Binary, "redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server")
}

func (r Redis) command(dir string, port int) (*exec.Cmd, error) {
	binary, err := r.binary()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(port),
		"--dir", dir,
		"--save", "",
		"--appendfsync", "no",
		"--appendonly", "no",
	}
	if r.AppendOnly {
		args = append(args, "--appendonly", "yes")
	}
	return exec.Command(binary, append(args, r.Args...)...), nil
}

// probe takes every reply for health but the one that says that data is still
// being loaded: a server that wants a password is up.
func (Redis) probe(ctx context.Context, addr string) error {
	reply, err := ask(ctx, addr, "PING\r\n")
	if err == nil && strings.HasPrefix(reply, "-LOADING") {
		return errors.New("redis is loading its data")
	}
	return err
}

func (r Redis) version(ctx context.Context, _ string) (string, error) {
	binary, err := r.binary()
	if err != nil {
		return "", err
	}
	return versionOf(ctx, binary, "--version")
}

func (Redis) shutdown() syscall.Signal { return syscall.SIGTERM }
